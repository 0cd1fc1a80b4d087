"""A real MLflow server and the real command `paceline serve --pairing`, each in its own process."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import PairManifest
from registry.schema import prepare_database
from registry.store import PairVersion, Store
from speculation.records import Phase
from tests.registry.conftest import mlflow_server, passed

ROOT = Path(__file__).parents[2]
POLL_SECONDS = 0.2
# Of a start or a swap on a machine that does other things too; usually one to five seconds.
PATIENCE_SECONDS = 120.0
# Loads the libraries once; each server is forked from it, with the command line of `paceline`, and
# kills itself where it is told to.
DRIVER = """
import json, os, signal, sys

import serving.running
from cli.main import app
from registry import remote
from serving.journal import Journal


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(step):
    write, fetch = Journal.write, remote._file

    def writes(journal, name, *more):
        written = write(journal, name, *more)
        if name == step:
            die()
        return written

    Journal.write = writes
    if step == "a file":
        remote._file = lambda *given, **more: (fetch(*given, **more), die())
    if step == "all files":
        remote._settle = die


for line in sys.stdin:
    argv, step, log = json.loads(line)
    child = os.fork()
    if child == 0:
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 2)
        deadly(step)
        sys.argv = ["paceline", *argv]
        try:
            app()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Registry:
    """A real MLflow server, as Paceline's store and as files on its disk."""

    url: str
    home: Path
    store: Store

    def add(
        self,
        pairing: str,
        target: Path,
        draft: str | Path,
        *,
        phase: Phase | None = Phase.PASS,
    ) -> PairVersion:
        """Register a pair as a retrain does."""
        manifest = PairManifest(
            release=fingerprint(target),
            release_uri=str(target),
            draft=fingerprint_draft(draft),
            context_measured=256,
        )
        with TemporaryDirectory(dir=self.home) as name:
            files = Path(name)
            if isinstance(draft, Path):
                copytree(draft, files / "draft")
            verdict = None if phase is None else passed(phase)
            return self.store.register_pair(pairing, manifest, files, report={}, verdict=verdict)

    def stored(self, pair: PairVersion, name: str) -> Path:
        """Where MLflow keeps one of the pair's files."""
        (found,) = self.home.glob(f"artifacts/*/models/{pair.model_id}/artifacts/{name}")
        return found

    def move_by_hand(self, pair: PairVersion) -> None:
        """As somebody does on MLflow's page."""
        self.store.client.set_registered_model_alias(pair.pairing, "champion", str(pair.version))


@contextmanager
def real_registry(home: Path, *more: str) -> Iterator[Registry]:
    """The server over a database in `home`, which may have been used before."""
    database = f"sqlite:///{home / 'mlflow.db'}"
    prepare_database(database)
    with mlflow_server(database, home, *more) as url:
        yield Registry(url, home, Store(url, locks=home / "locks"))


class Paceline:
    """A server of one pairing, seen from outside."""

    def __init__(self, url: str, log: Path) -> None:
        self.log = log
        self.client = httpx.Client(base_url=url, timeout=60.0, trust_env=False)

    def told(self) -> dict[str, Any]:
        """What /admin/pair tells."""
        answer: dict[str, Any] = self.client.get("/admin/pair").raise_for_status().json()
        return answer

    def ready(self) -> bool:
        return self.client.get("/health/ready").status_code == 200

    def failed(self) -> list[dict[str, Any]]:
        return [one for one in self.told()["swaps"] if one["outcome"] == "failed"]

    def gauge(self, series: str) -> float:
        page = self.client.get("/metrics").raise_for_status().text
        (line,) = [one for one in page.splitlines() if one.startswith(f"{series} ")]
        return float(line.rsplit(" ", 1)[1])

    def ask(self, *, tokens: int = 12) -> dict[str, Any]:
        """What an answer took. AssertionError for one that is not given."""
        body = {"prompt": "the quick brown fox", "max_tokens": tokens, "min_tokens": tokens}
        answer = self.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        usage: dict[str, Any] = answer.json()["usage"]["paceline"]
        return usage

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()`."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if holds():
                    return
            except httpx.TransportError:  # it does not listen yet
                pass
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            time.sleep(0.05)

    def until_served(self, pair: PairVersion) -> dict[str, Any]:
        """Wait for the pair; what an answer then took."""
        self.until(lambda: self.told().get("pair") == pair.pair_id)
        usage = self.ask()
        assert (usage["pair"], usage["release"]) == (pair.pair_id, pair.release)
        return usage


def command(home: Path, registry: str, pairing: str, port: int) -> list[str]:
    argv = ["serve", "--pairing", pairing, "--registry", registry, "--home", str(home)]
    return [*argv, "--port", str(port), "--max-context", "128", "--threads", "1"]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        **{"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        "PACELINE_SERVING__POLL_SECONDS": str(POLL_SECONDS),
    }


@contextmanager
def paceline(
    home: Path, registry: str, pairing: str, environ: Mapping[str, str] | None = None
) -> Iterator[Paceline]:
    """`paceline serve --pairing`, from its start until the block ends. It ends in order."""
    home.mkdir(exist_ok=True)
    port = free_port()
    argv = [sys.executable, "-m", "cli.main", *command(home, registry, pairing, port)]
    log = home / "server.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            argv, env={**environment(), **(environ or {})}, cwd=home, stdout=file, stderr=file
        )
    server = Paceline(f"http://127.0.0.1:{port}", log)
    try:
        yield server
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait()
        server.client.close()


class Forks:
    """Servers that are forked from one process, which has loaded the libraries. One at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._child: int | None = None

    def killed(self, home: Path, registry: str, pairing: str, step: str) -> None:
        """Let a server run until it has killed itself after that step of its first swap."""
        log = home / "server.log"
        self._start(command(home, registry, pairing, 0), step, log)
        assert self._ended() == -signal.SIGKILL, log.read_text()[-4000:]

    @contextmanager
    def paceline(self, home: Path, registry: str, pairing: str) -> Iterator[Paceline]:
        """As `paceline`, sooner."""
        home.mkdir(exist_ok=True)
        port, log = free_port(), home / "server.log"
        child = self._start(command(home, registry, pairing, port), "", log)
        server = Paceline(f"http://127.0.0.1:{port}", log)
        try:
            yield server
            os.kill(child, signal.SIGTERM)
            assert self._ended() == 0, log.read_text()[-4000:]
        finally:
            server.client.close()
            self.end()

    def end(self) -> None:
        """Kill the server that runs, if one does."""
        if self._child is not None:
            os.kill(self._child, signal.SIGKILL)
            self._ended()

    def _start(self, argv: list[str], step: str, log: Path) -> int:
        assert self._process.stdin is not None
        print(json.dumps([argv, step, str(log)]), file=self._process.stdin, flush=True)
        self._child = self._line()
        return self._child

    def _ended(self) -> int:
        code = self._line()
        self._child = None
        return code

    def _line(self) -> int:
        pipe = self._process.stdout
        assert pipe is not None
        assert select.select([pipe], [], [], PATIENCE_SECONDS)[0], "waited in vain for a server"
        return int(pipe.readline())


@contextmanager
def forks(home: Path) -> Iterator[Forks]:
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(
        argv, env=environment(), cwd=home, stdin=pipe, stdout=pipe, text=True
    ) as process:
        made = Forks(process)
        try:
            yield made
        finally:
            made.end()
            assert process.stdin is not None
            process.stdin.close()
