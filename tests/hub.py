"""A stand-in for the Hugging Face hub's HTTP API: one repository, its files at one commit.

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
    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)  # method and path
    cut: set[str] = field(default_factory=set)  # files whose body ends before it should, once each
    url: str = ""

    @property
    def commit(self) -> str:
        """Of the content, as a git commit is."""
        known = hashlib.sha1()
        for name, content in sorted(self.files.items()):
            known.update(name.encode() + b"\0" + content)
        return known.hexdigest()

    @classmethod
    def of(cls, repository: str, folder: Path) -> Hub:
        """A repository that holds a folder's files."""
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        return cls(repository, files)


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    """The stand-in on a free loopback port, at `hub.url`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            path = unquote(urlsplit(self.path).path)
            api, files = f"/api/models/{hub.repository}", f"/{hub.repository}/resolve/"
            if path in (f"{api}/revision/main", f"{api}/revision/{hub.commit}"):
                siblings = [{"rfilename": name} for name in hub.files]
                self._json({"id": hub.repository, "sha": hub.commit, "siblings": siblings})
            elif path.startswith(f"{api}/tree/"):
                self._json([self._entry(name) for name in hub.files])
            elif path.startswith(files):
                _, _, name = path.removeprefix(files).partition("/")
                self._file(name)
            else:
                self._missing()

        do_HEAD = do_GET

        def _entry(self, name: str) -> dict[str, object]:
            content = hub.files[name]
            return {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}

        def _json(self, value: object) -> None:
            self._answer(json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _file(self, name: str) -> None:
            content = hub.files.get(name)
            if content is None:
                self._missing()
                return
            headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": hub.commit}
            short = self.command == "GET" and name in hub.cut
            hub.cut.discard(name if short else "")
            self._answer(content, headers, sent=content[: len(content) // 2] if short else content)

        def _missing(self) -> None:
            self._answer(b"", {"X-Error-Code": "RepoNotFound"}, status=404)

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


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
