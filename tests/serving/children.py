"""Runs a real server in a process of its own, and looks at it from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
SERVER = """
import json, logging, sys
from pathlib import Path
from serving.main import serve
from serving.settings import ServeSettings
logging.basicConfig(level="INFO")
given = json.loads(sys.argv[1])
folders = {name: Path(given.pop(name)) for name in ("home", "target")}
sys.exit(serve(ServeSettings(**folders, **given)))
"""


@dataclass
class Child:
    process: subprocess.Popen[bytes]
    url: str

    def memory_bytes(self) -> int:
        """Resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def files(self) -> int:
        """Open handles."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def gauge(self, name: str) -> int:
        page = httpx.get(f"{self.url}/metrics", timeout=30).text
        (line,) = [one for one in page.splitlines() if one.startswith(f"paceline_{name} ")]
        return int(float(line.split()[1]))

    def running(self) -> int:
        return self.gauge("running_requests")

    def until_running(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        end = time.monotonic() + timeout_seconds
        while self.running() != count:
            assert time.monotonic() < end, f"{self.running()} run, waited for {count}"
            time.sleep(0.02)


@contextmanager
def child(target: Path, home: Path, **settings: Any) -> Iterator[Child]:
    """A server that is ready, with these `ServeSettings`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = json.dumps({"home": str(home), "target": str(target), "port": port} | settings)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", SERVER, given]
    with subprocess.Popen(argv, env=environ, cwd=home, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end and process.poll() is None:
                try:
                    if httpx.get(f"{url}/health/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
            yield Child(process, url)
        finally:
            process.kill()
