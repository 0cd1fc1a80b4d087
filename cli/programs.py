"""The programs of a home: how each is started, where it answers, and what it needs before.

Knows argv, ports and environments; starts nothing.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from configuration.settings import Settings

HOST = "127.0.0.1"
STOP_SECONDS = 5.0  # nothing is lost by killing one: all of them keep their state on disk
WEBHOOKS = {  # of MLflow's server, which answers this machine alone
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One of them."""

    name: str
    argv: list[str]
    base: str = ""  # URL without a path; empty: it answers nowhere
    ready: str = ""  # path that answers 200 once it is up
    extra: Mapping[str, str] = field(default_factory=dict)  # environment
    needs: tuple[str, ...] = ()  # names of those that have to be up before
    stop_seconds: float = STOP_SECONDS  # from SIGTERM to SIGKILL


def mlflow(home: Path, port: int) -> Program:
    """The tracking server and registry."""
    folder = home / "mlflow"
    argv = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    argv += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    argv += ["--artifacts-destination", str(folder / "artifacts")]
    argv += ["--host", HOST, "--port", str(port)]
    # a server made by hand refuses webhooks to this machine, and loses them when it restarts
    extra = {**WEBHOOKS, "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": key_of(folder / "webhook.key")}
    return Program("mlflow", argv, f"http://{HOST}:{port}", "/health", extra)


def prefect(home: Path, port: int) -> Program:
    """The server of the flows."""
    argv = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST]
    argv += ["--port", str(port)]
    database = f"sqlite+aiosqlite:///{home / 'prefect' / 'prefect.db'}"
    extra = {
        "PREFECT_API_DATABASE_CONNECTION_URL": database,
        "PREFECT_UI_API_URL": f"http://{HOST}:{port}/api",
    }
    return Program("prefect", argv, f"http://{HOST}:{port}", "/api/health", extra)


def worker(home: Path, port: int, needs: tuple[str, ...] = ()) -> Program:
    """What runs the flows; answers once it polls."""
    argv = [sys.executable, "-m", "flows.worker", "--home", str(home)]
    extra = {"PREFECT_RUNNER_SERVER_PORT": str(port)}
    return Program("worker", argv, f"http://{HOST}:{port}", "/health", extra, needs)


def key_of(path: Path) -> str:
    """The key that MLflow keeps its webhooks' secrets under: made once for a home, and nobody
    else's to read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.touch(mode=0o600)
        beside.write_text(base64.urlsafe_b64encode(os.urandom(32)).decode())
        os.replace(beside, path)
    return path.read_text().strip()


def server(
    settings: Settings, pairing: str, registry: str, port: int, needs: tuple[str, ...] = ()
) -> Program:
    """The speculative server that follows the pairing's champion. It is up before it has one."""
    argv = [sys.executable, "-m", "cli.main", "serve", "--pairing", pairing]
    argv += ["--registry", registry, "--home", str(settings.home.absolute())]
    serving = settings.serving
    if not serving.port:
        argv += ["--port", str(port)]
    base = f"http://{_reached(serving.host)}:{serving.port or port}"
    seconds = serving.grace_seconds + STOP_SECONDS
    return Program("server", argv, base, "/health/live", {}, needs, seconds)


def admin_url(settings: Settings, port: int) -> str:
    """Where the operator's side of that server answers."""
    serving = settings.serving
    return f"http://{_reached(serving.host)}:{serving.admin_port or serving.port or port}"


def monitor(
    home: Path, pairing: str, registry: str, url: str, needs: tuple[str, ...] = ()
) -> Program:
    """What watches that server; it answers nowhere."""
    argv = [sys.executable, "-m", "cli.main", "monitor", "--pairing", pairing]
    argv += ["--server", url, "--registry", registry, "--home", str(home)]
    return Program("monitor", argv, needs=needs)


def with_extra(program: Program, extra: Mapping[str, str]) -> Program:
    """The program with more in its environment."""
    return replace(program, extra={**program.extra, **extra})


def _reached(host: str) -> str:
    """Where this machine reaches a server that binds to `host`."""
    if host in ("0.0.0.0", "::"):
        return HOST
    return f"[{host}]" if ":" in host else host
