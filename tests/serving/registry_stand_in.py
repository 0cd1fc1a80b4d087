"""The few REST calls of MLflow that a serving host makes, over real sockets, from a folder."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from registry.adapters import fingerprint_adapter
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import PairManifest, read_manifest, with_files, write_manifest
from registry.versions import DRAFT_KIND, PAIR_ID, RELEASE, VERDICT

PAIRING = "docstrings"
API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


class StandIn:
    """A registry of one pairing. Versions count from 1; `promote` moves the alias."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.champion: int | None = None
        self.away = False  # every answer is 503
        self.says: bytes | None = None  # instead of who is champion
        self.looks = 0  # that asked for the champion
        self.downloads: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = outer.answer(self.path)
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def place(self, version: int) -> Path:
        return self.folder / f"m-{version:04x}"

    def register(
        self, target: Path, draft: str | Path, adapters: Mapping[str, Path] | None = None
    ) -> int:
        """Store a pair; its version."""
        version = len(list(self.folder.glob("m-*"))) + 1
        place = self.place(version)
        place.mkdir(parents=True)
        if isinstance(draft, Path):
            shutil.copytree(draft, place / "draft")
        (place / "report").mkdir()
        (place / "report" / "report.json").write_text("{}")
        manifest = PairManifest(
            release=fingerprint(target),
            release_uri=str(target),
            draft=fingerprint_draft(draft),
            context_measured=256,
            adapters={name: fingerprint_adapter(at) for name, at in (adapters or {}).items()},
            adapter_uris={name: str(at) for name, at in (adapters or {}).items()},
        )
        write_manifest(with_files(manifest, place), place)
        return version

    def promote(self, version: int) -> str:
        """Move the alias; the pair's id."""
        self.champion = version
        return self.pair_id(version)

    def pair_id(self, version: int) -> str:
        return read_manifest(self.place(version)).pair_id

    def answer(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(path)
        if self.away:
            return 503, b"{}"
        if parts.path == f"{API}/registered-models/alias":
            assert parse_qs(parts.query) == {"name": [PAIRING], "alias": ["champion"]}
            self.looks += 1
            return self._alias() if self.says is None else (200, self.says)
        if parts.path == f"{API}/model-versions/search":  # whether the release is the pairing's
            return 200, b'{"model_versions": [{}]}'
        if parts.path.startswith(f"{API}/logged-models/"):
            uri = f"mlflow-artifacts:/1/models/{parts.path.rsplit('/', 1)[1]}"
            return 200, json.dumps({"model": {"info": {"artifact_uri": uri}}}).encode()
        wanted = unquote(parts.path).removeprefix(f"{ARTIFACTS}/1/models/")
        self.downloads.append(wanted)
        file = self.folder / wanted
        return (200, file.read_bytes()) if file.is_file() else (404, b"{}")

    def _alias(self) -> tuple[int, bytes]:
        if self.champion is None:
            return 400, b'{"error_code": "INVALID_PARAMETER_VALUE"}'
        manifest = json.loads((self.place(self.champion) / "pair.json").read_text())
        tags = {
            PAIR_ID: manifest["pair_id"],
            RELEASE: manifest["release"]["digest"],
            DRAFT_KIND: manifest["draft"]["kind"],
            VERDICT: "PASS",
        }
        version = {
            "version": str(self.champion),
            "source": f"models:/m-{self.champion:04x}",
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        return 200, json.dumps({"model_version": version}).encode()


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    registry = StandIn(folder)
    thread = threading.Thread(target=registry.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        registry.server.shutdown()
        thread.join()
        registry.server.server_close()
