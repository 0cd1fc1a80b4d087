"""The servers of one home folder, as children of this process: started in order, ended with it.

Knows which programs there are, where each keeps its state and how to tell that it is ready.
Knows nothing of models, releases or verdicts.

    home/run/lock         held while a stack of this home runs; the system frees it with its holder
    home/run/NAME.log     what a child printed
    home/run/stack.json   where the servers answer now
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from cli import programs
from cli.leftovers import end_leftovers, record
from cli.programs import HOST, STOP_SECONDS
from cli.supervised import supervised
from configuration.quiet import QUIET
from evaluation.endpoints import (
    Endpoint,
    EndpointError,
    bound,
    ending,
    free_port,
    started,
    tail,
)

SCHEMA_SECONDS = 300.0
READY_SECONDS = 300.0  # a server imports for seconds; on a machine that is busy, for minutes
LEASES = "prefect.server.concurrency.lease_storage.filesystem"
PREFECT = {
    # leases in memory would cancel every running flow when the server restarts
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    "PREFECT_RUNNER_SERVER_ENABLE": "true",  # answers /health once it polls
    "PREFECT_RUNNER_SERVER_HOST": HOST,
    "PREFECT_RUNNER_SERVER_LOG_LEVEL": "ERROR",
}


class HomeInUse(ValueError):
    """Another process runs the servers of this home."""


# Of other servers; and of a server's own callers, of whom the stack's own need no keys.
FOREIGN = ("PREFECT_", "MLFLOW_", "PACELINE_KEYS", "PACELINE_ADMIN_KEYS")


class Stack:
    """The servers of one home. Use as a context manager; enter and leave in the same thread."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home = home.resolve()
        self.run = self.home / "run"
        self.urls: dict[str, str] = {}
        self.ended: list[str] = []  # leftovers of a killed run that had to be ended
        self._children = ExitStack()
        self._running: dict[str, Endpoint] = {}
        self._lock: IO[str] | None = None
        # settings that a user has for other servers of these libraries would reach into ours
        self._environ = {
            **{k: v for k, v in environ.items() if not k.startswith(FOREIGN)},
            **QUIET,
            **past_proxies(environ),
            **PREFECT,
            "PREFECT_HOME": str(self.home / "prefect"),
            "PACELINE_HOME": str(self.home),
        }

    def __enter__(self) -> Stack:
        for folder in ("run", "mlflow/artifacts", "prefect"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.run / "lock")
        self.ended = end_leftovers(self.run / "children.json")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._children.__exit__(kind, error, trace)  # a child that is dead adds its last words
            (self.run / "children.json").unlink(missing_ok=True)
            (self.run / "stack.json").unlink(missing_ok=True)
        finally:
            if self._lock is not None:
                self._lock.close()

    def create_schemas(self) -> None:
        """Make both databases, once per home and each by a single process.

        Several processes that open a new database at once leave it half migrated for ever, and so
        does one that is killed: it is made beside its place and renamed when it is whole.
        """
        mlflow, prefect = self.home / "mlflow" / "mlflow.db", self.home / "prefect" / "prefect.db"
        beside = prefect.with_suffix(".new")
        jobs = {}
        if not mlflow.exists():  # the registry's way of doing the same, without loading MLflow here
            code = "import sys; from registry.schema import prepare_database as p; p(sys.argv[1])"
            jobs[mlflow] = [sys.executable, "-c", code, f"sqlite:///{mlflow}"]
        if not prefect.exists():
            for stale in prefect.parent.glob(f"{beside.name}*"):
                stale.unlink()
            jobs[prefect] = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
        url = {"PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{beside}"}
        with ExitStack() as makers:
            children = {}
            for made, argv in jobs.items():
                name = f"{made.stem}-schema"
                log = makers.enter_context((self.run / f"{name}.log").open("wb"))
                children[made] = makers.enter_context(
                    bound(
                        argv,
                        log,
                        environ={**self._environ, **url},
                        stop_seconds=STOP_SECONDS,
                        began=self._recorded(name),
                    )
                )
            for made, child in children.items():
                if child.wait(SCHEMA_SECONDS) != 0:
                    log_path = self.run / f"{made.stem}-schema.log"
                    raise EndpointError(
                        f"could not create {made}; {log_path} ends\n{tail(log_path)}"
                    )
            if prefect in jobs:
                os.replace(beside, prefect)

    def start_mlflow(self) -> str:
        """The tracking server and registry. Gives its URL."""
        url = self._start_program(programs.mlflow(self.home, free_port()))
        self._environ["MLFLOW_TRACKING_URI"] = self._environ["PACELINE_REGISTRY"] = url
        return url

    def start_prefect(self) -> str:
        """The server of the flows. Gives its URL, without /api."""
        url = self._start_program(programs.prefect(self.home, free_port()))
        self._environ["PREFECT_API_URL"] = f"{url}/api"
        return url

    def start_worker(self) -> None:
        """What runs the flows; needs MLflow and Prefect."""
        self._start_program(programs.worker(self.home, free_port()))

    def start_server(self, pairing: str, *options: str) -> str:
        """The speculative server that follows the alias `champion` of `pairing`. Gives its URL."""
        port = free_port()
        argv = [sys.executable, "-m", "cli.main", "serve", "--pairing", pairing]
        argv += ["--registry", self.urls["mlflow"], "--home", str(self.home)]
        argv += ["--host", HOST, "--port", str(port), *options]
        return self._start("server", argv, f"http://{HOST}:{port}", "/health/ready")

    def start_monitor(self, pairing: str) -> None:
        """What watches the speculative server; needs it."""
        argv = [sys.executable, "-m", "cli.main", "monitor", "--pairing", pairing]
        argv += ["--server", self.urls["server"], "--registry", self.urls["mlflow"]]
        argv += ["--home", str(self.home)]
        self._start("monitor", argv, None, "")

    def children(self) -> dict[str, Endpoint]:
        """Those that run, by name."""
        return dict(self._running)

    def environ(self) -> dict[str, str]:
        """The environment that the children got: what a process needs to talk to them."""
        return dict(self._environ)

    def check(self) -> None:
        """Raise EndpointError, with the end of its log, where a child that should run is gone."""
        for name, child in self._running.items():
            code = child.exit_code()
            if code is not None:
                raise EndpointError(
                    f"{name} {ending(code)} while it was needed: run the command again to go on; "
                    f"the end of {child.log}:\n{tail(child.log)}"
                )

    @contextmanager
    def child(
        self,
        name: str,
        argv: Sequence[str],
        *,
        ready_url: str | None,  # None: it answers nowhere
        extra: Mapping[str, str] | None = None,  # environment
    ) -> Iterator[Endpoint]:
        """One more server beside the stack's own, for as long as the block runs."""
        with started(
            argv,
            ready_url=ready_url,
            log=self.run / f"{name}.log",
            timeout_seconds=READY_SECONDS,
            stop_seconds=STOP_SECONDS,
            environ={**self._environ, **(extra or {})},
            began=self._recorded(name),
        ) as endpoint:
            self._running[name] = endpoint
            try:
                yield endpoint
            finally:
                del self._running[name]

    def finish(self, name: str, argv: Sequence[str], output: IO[Any]) -> None:
        """Run a program to its end. EndpointError where it fails, or a server dies meanwhile."""
        code = supervised(
            argv,
            output,
            check=self.check,
            environ=self._environ,
            stop_seconds=STOP_SECONDS,
            began=self._recorded(name),
        )
        if code != 0:
            raise EndpointError(f"{name} {ending(code)}: its own words are above")

    def record(self, name: str, pid: int) -> None:
        """Note a child, so that the next start ends it where this process cannot."""
        record(self.run / "children.json", name, pid)

    def _start_program(self, program: programs.Program) -> str:
        return self._start(program.name, program.argv, program.base, program.ready, program.extra)

    def _start(
        self,
        name: str,
        argv: list[str],
        base: str | None,
        ready: str,
        extra: Mapping[str, str] | None = None,
    ) -> str:
        url = None if base is None else base + ready
        self._children.enter_context(self.child(name, argv, ready_url=url, extra=extra))
        if base is not None:
            self.urls[name] = base
            (self.run / "stack.json").write_text(json.dumps(self.urls, indent=1))
        return base or ""

    def _recorded(self, name: str) -> Callable[[int], None]:
        return lambda pid: self.record(name, pid)


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep a user's proxy away from loopback, and what they name already."""
    theirs = (environ.get("no_proxy") or environ.get("NO_PROXY", "")).split(",")
    named = dict.fromkeys(name.strip() for name in (*theirs, HOST, "localhost") if name.strip())
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(named))


def _locked(path: Path) -> IO[str]:
    """The lock file, held by this process until it is closed or the process is gone."""
    held = path.open("a+")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.seek(0)
        holder = held.read().strip() or "another process"
        held.close()
        raise HomeInUse(
            f"the home {path.parent.parent} is in use by process {holder}: end that one first, "
            "or choose another folder with --home"
        ) from None
    held.seek(0)
    held.truncate()
    held.write(str(os.getpid()))
    held.flush()
    return held
