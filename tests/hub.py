"""A stand-in for the Hugging Face hub's HTTP API: one repository, with its commits and branches.

Serves what huggingface_hub asks of the real one: a revision's commit, its tree, and its files.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """What the stand-in holds, and what it was asked for."""

    repository: str  # owner/name
    files: dict[str, bytes]  # at the head of main
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # earlier ones, and others'
    branches: dict[str, str] = field(default_factory=dict)  # commit by name, beside main
    asked: list[str] = field(default_factory=list)  # method and path
    cut: set[str] = field(default_factory=set)  # files whose body ends before it should, once each
    token: str = ""  # that is asked for; empty: it is public
    moves: dict[str, bytes] | None = None  # what main is at once a first file was asked for
    url: str = ""

    @property
    def commit(self) -> str:
        """Of the content, as a git commit is."""
        return commit_of(self.files)

    def push(self, files: dict[str, bytes]) -> str:
        """Another commit on main; the one before stays what it is. Its hash."""
        self.commits[self.commit] = self.files
        self.files = files
        return self.commit

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit that a branch or a hash names, with its files."""
        commit = self.branches.get(revision, revision)
        if commit in ("main", self.commit):
            return self.commit, self.files
        return (commit, self.commits[commit]) if commit in self.commits else None

    @classmethod
    def of(cls, repository: str, folder: Path) -> Hub:
        """A repository that holds a folder's files."""
        return cls(repository, files_of(folder))


def files_of(folder: Path) -> dict[str, bytes]:
    """A folder's files by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def commit_of(files: dict[str, bytes]) -> str:
    known = hashlib.sha1()
    for name, content in sorted(files.items()):
        known.update(name.encode() + b"\0" + content)
    return known.hexdigest()


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    """The stand-in on a free loopback port, at `hub.url`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            path = unquote(urlsplit(self.path).path)
            api, files = f"/api/models/{hub.repository}", f"/{hub.repository}/resolve/"
            if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
                self._missing("RepoNotFound", status=401)
            elif path.startswith((f"{api}/revision/", f"{api}/tree/")):
                kind, _, revision = path.removeprefix(f"{api}/").partition("/")
                found = hub.at(revision.partition("/")[0])
                if found is None:
                    self._missing("RevisionNotFound")
                elif kind == "tree":
                    self._json([_entry(name, content) for name, content in found[1].items()])
                else:
                    siblings = [{"rfilename": name} for name in found[1]]
                    self._json({"id": hub.repository, "sha": found[0], "siblings": siblings})
            elif path.startswith(files):
                revision, _, name = path.removeprefix(files).partition("/")
                self._file(revision, name)
            else:
                self._missing("RepoNotFound")

        do_HEAD = do_GET

        def _json(self, value: object) -> None:
            self._answer(json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _file(self, revision: str, name: str) -> None:
            found = hub.at(revision)
            content = None if found is None else found[1].get(name)
            if found is None or content is None:
                self._missing("EntryNotFound")
                return
            if hub.moves is not None:
                hub.push(hub.moves)
                hub.moves = None
            headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": found[0]}
            short = self.command == "GET" and name in hub.cut
            hub.cut.discard(name if short else "")
            self._answer(content, headers, sent=content[: len(content) // 2] if short else content)

        def _missing(self, why: str, *, status: int = 404) -> None:
            self._answer(b"", {"X-Error-Code": why}, status=status)

        def _answer(
            self,
            content: bytes,
            headers: dict[str, str],
            *,
            status: int = 200,
            sent: bytes | None = None,
        ) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content if sent is None else sent)
            if sent is not None and len(sent) < len(content):
                self.close_connection = True

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(name: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
