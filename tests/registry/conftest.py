"""One migrated database, copied for each test, and one real MLflow server for the session."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, event

from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import Making, PairManifest
from registry.schema import prepare_database
from registry.store import PairVersion, Store
from speculation.records import Finding, Interval, Phase, Verdict
from tests.registry import postgres, tiny


@pytest.fixture(scope="session", autouse=True)
def hasty() -> Iterator[None]:
    """No database of these tests has to survive a power cut: that halves their time."""

    def pragma(connection: sqlite3.Connection, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", pragma)
    yield
    event.remove(Engine, "connect", pragma)


START_SECONDS = 90  # of MLflow's server on a busy machine; usually six


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database: creating one takes seconds, copying it none."""
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> Store:
    """A store of its own for each test, without a server."""
    (tmp_path / "mlflow").mkdir()
    database = shutil.copy(migrated, tmp_path / "mlflow" / "mlflow.db")
    return Store(f"sqlite:///{database}")


@pytest.fixture(scope="session")
def template(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and a database that holds three pairs of it, all passed."""
    folder = tmp_path_factory.mktemp("template")
    database = shutil.copy(migrated, folder / "mlflow.db")
    store = Store(f"sqlite:///{database}")
    tiny.target(folder / "target")
    for seed in range(3):
        registered(store, folder / "target", folder / str(seed), seed=seed)
    return folder


@pytest.fixture
def three(template: Path, tmp_path: Path) -> Store:
    """A store of its own with three pairs; the newest is the candidate."""
    (tmp_path / "mlflow").mkdir()
    database = shutil.copy(template / "mlflow.db", tmp_path / "mlflow" / "mlflow.db")
    return Store(f"sqlite:///{database}")


@contextmanager
def mlflow_server(database: str, home: Path, *more: str, **environ: str) -> Iterator[str]:
    """A real MLflow server on loopback over the database at that URL; its own URL. Its port is a
    free one, if `more` names none."""
    if "--port" in more:
        port = int(more[more.index("--port") + 1])
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    argv = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--backend-store-uri", database]
    if "--artifacts-destination" not in more:
        argv += ["--artifacts-destination", str(home / "artifacts")]
    url = f"http://127.0.0.1:{port}"
    lean = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (home / "server.log").open("wb") as log:
        child = subprocess.Popen(
            [*argv, *more], stdout=log, stderr=log, env={**os.environ, **lean, **environ}
        )
        try:
            for _ in range(START_SECONDS * 5):
                if child.poll() is not None:
                    pytest.fail(f"mlflow server ended: {(home / 'server.log').read_text()[-2000:]}")
                try:
                    httpx.get(f"{url}/health", timeout=1).raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            yield url
        finally:
            child.terminate()
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.fixture(scope="session")
def server(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real MLflow server on SQLite, with artifacts through its proxy."""
    home = tmp_path_factory.mktemp("server")
    database = shutil.copy(migrated, home / "mlflow.db")
    with mlflow_server(f"sqlite:///{database}", home) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same on PostgreSQL. Skips where that is not installed."""
    postgres.needed()
    with (
        postgres.cluster() as database,
        mlflow_server(database, tmp_path_factory.mktemp("postgres-server")) as url,
    ):
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def any_server(request: pytest.FixtureRequest) -> str:
    """A real server on each database."""
    name = {"sqlite": "server", "postgresql": "postgres_server"}[request.param]
    return str(request.getfixturevalue(name))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "target")


def passed(phase: Phase = Phase.PASS) -> Verdict:
    interval = Interval(0.61, 0.57, 0.65, 80)
    return Verdict.of([Finding("floor", phase, "alpha-hat is 0.61, at worst 0.57", interval, 0.4)])


def pair_files(folder: Path, draft: str, *, seed: int = 0) -> Path:
    """A pair's folder as a retrain leaves it."""
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "report.json").write_text('{"rows": []}')
    (folder / "report" / "hazards.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    if draft == "head":
        tiny.head(folder / "draft", seed=seed)
        (folder / "training").mkdir()
        tiny.write_json(
            folder / "training" / "curves.json",
            [{"epoch": n, "loss": 1 / n, "judged": [1, 2]} for n in (1, 2, 3)],
        )
    return folder


def manifest_of(target: Path, files: Path, draft: str, *, report: str = "") -> PairManifest:
    return PairManifest(
        release=fingerprint(target),
        release_uri=str(target),
        draft=fingerprint_draft(files / "draft" if draft == "head" else draft),
        context_measured=256,
        making=Making(recipe={"epochs": 3, "optimizer": {"learning_rate": 1e-3}}),
        engine="builtin",
        engine_version="0.1.0",
        report=report,
    )


def registered(
    store: Store,
    target: Path,
    files: Path,
    draft: str = "head",
    *,
    seed: int = 0,
    phase: Phase | None = Phase.PASS,
    report: str = "",
    pairing: str = "docstrings",
    judged_against: int | None = None,
) -> PairVersion:
    """Register a pair as a retrain would; `files` is made when it is not there."""
    if not files.exists():
        pair_files(files, draft, seed=seed)
    row = {"pair": "candidate", "alpha_hat": 0.61, "tokens_per_second": 123.4, "requests": 80}
    return store.register_pair(
        pairing,
        manifest_of(target, files, draft, report=report),
        files,
        report={"rows": [row, {"pair": "none", "alpha_hat": None, "requests": 80}]},
        verdict=None if phase is None else passed(phase),
        description="Made because **release 2** was trained on docstrings.",
        metrics={
            "acceptance": 0.61,
            "acceptance_length": 2.3,
            "speedup": 1.52,
            "odd": float("nan"),
        },
        judged_against=judged_against,
    )
