"""A small real HTTP server with the admin side and metrics of the built-in one, and no model.

It answers from a real exchange log, and its metrics come from the library that real servers use.
It can be stopped and started anew on its port, which forgets the counters and keeps the log.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, Counter, generate_latest

from monitoring.exchanges import ExchangeLog, read_logged
from speculation.records import Counts, Exchange

RELEASE = "d" * 64


class SmallServer:
    """`serve` says that requests have ended; `pair`, `broken` and `lines` change the answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = ExchangeLog(folder)
        self.pair: dict[str, Any] = {
            "pair": "p-1",
            "drafter": "head",
            "release": RELEASE,
            "draft_len": 4,
            "swaps": [],
        }
        self.broken: bytes | None = None  # answered to everything instead
        self.lines: list[bytes] = []  # sent before the exchanges
        self.asked: list[str] = []
        self.served = 0
        self.port = 0
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        server = self
        self.registry = CollectorRegistry()
        labels = ("pair", "drafter")
        self.emitted = Counter("paceline_emitted_tokens", "e", labels, registry=self.registry)
        self.requests = Counter(
            "paceline_requests", "r", (*labels, "outcome"), registry=self.registry
        )

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = server.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def close(self) -> None:
        self.stop()
        self.log.close()

    def serve(
        self, requests: Iterable[Counts], *, pair: str = "p-1", drafter: str = "head"
    ) -> None:
        for counts in requests:
            self.served += 1
            started = time.time() - 1.0
            self.log.append(
                Exchange(
                    f"r{self.served}",
                    pair,
                    RELEASE,
                    drafter,
                    4,
                    started,
                    20,
                    0,
                    counts,
                    0.0,
                    0.1,
                    0.4,
                    "stop",
                )
            )
            if self._http is not None:
                self.emitted.labels(pair, drafter).inc(counts.emitted)
                self.requests.labels(pair, drafter, "stop").inc()

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        if self.broken is not None:
            return self.broken
        parts = urlsplit(path)
        if parts.path == "/metrics":
            return generate_latest(self.registry)
        if parts.path == "/admin/pair":
            return json.dumps(self.pair).encode()
        if parts.path == "/admin/exchanges":
            since = float(parse_qs(parts.query)["since"][0])
            stored = [json.dumps(one).encode() for one in read_logged(self.folder, since)]
            return b"".join(line + b"\n" for line in [*self.lines, *stored])
        return None
