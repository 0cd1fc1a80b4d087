"""Hears the registry's webhooks and has the worker look sooner. A lost one costs a minute.

What a webhook says is not read: that the registry signed it lately is all that counts, and all it
does is to hurry a look that comes anyway.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from configuration.settings import Settings
from flows.hurrying import hint
from registry.hooks import DELIVERY, HookError, Hooks

PATH = "/hooks/registry"  # as the speculative server has it
LONGEST_BODY = 64 * 1024  # bytes
PATIENCE_SECONDS = 10.0  # with whoever connects and says nothing


@contextmanager
def listening(settings: Settings) -> Iterator[str]:
    """The listener's URL while it hears; "" where none is configured. Raises OSError for a port
    that is taken."""
    if not settings.hooks.port or settings.hook_secret is None:
        yield ""
        return
    handler = _handler(settings.home, Hooks(settings.hook_secret))
    server = ThreadingHTTPServer((settings.hooks.host, settings.hooks.port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="hooks", daemon=True)
    thread.start()
    try:
        yield f"http://{settings.hooks.host}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(home: Path, hooks: Hooks) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()  # deliveries come side by side, and each counts once

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS

        def do_POST(self) -> None:
            told = self.headers.get("content-length", "")
            if self.path != PATH:
                self._answer(404)
            elif not (told.isascii() and told.isdigit()):
                self._answer(411)
            elif len(told) > 9 or int(told) > LONGEST_BODY:
                self._answer(413)
            else:
                self._hear(self.rfile.read(int(told)))

        def _hear(self, body: bytes) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                with lock:
                    new = hooks.new(headers, body)
            except HookError:
                self._answer(401)
                return
            if new:
                hint(home, "hook-" + hashlib.sha256(headers[DELIVERY].encode()).hexdigest()[:16])
            self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True

        def log_message(self, *args: object) -> None: ...

    return Handler
