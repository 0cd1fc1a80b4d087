"""The store as it is run when it is grown: on PostgreSQL and S3, behind MLflow's log-in, and with
thousands of versions and other people's models."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import httpx
import pytest
from sqlalchemy import Engine, event

from registry.credentials import header
from registry.crowding import crowd, looks
from registry.errors import NotFoundError, StoreError
from registry.promotion import promote
from registry.remote import champion, download
from registry.schema import database_of
from registry.store import LISTED, Store
from tests.registry import postgres
from tests.registry.conftest import mlflow_server, registered

START_SECONDS = 60


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """An S3 server on loopback with the bucket `pairs`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.log").open("wb") as log:
        child = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            for _ in range(START_SECONDS * 5):
                try:
                    httpx.put(f"{url}/pairs", timeout=5).raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            yield url
        finally:
            child.kill()
            child.wait()


@pytest.mark.slow  # three servers start
def test_a_pair_lives_in_postgresql_and_s3(s3: str, target: Path, tmp_path: Path) -> None:
    postgres.needed()
    (tmp_path / "mlflow").mkdir()
    there = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "local"}
    place = ("--artifacts-destination", "s3://pairs/mlflow")
    with (
        postgres.cluster() as database,
        mlflow_server(
            database, tmp_path / "mlflow", *place, MLFLOW_S3_ENDPOINT_URL=s3, **there
        ) as url,
    ):
        store = Store(url, locks=tmp_path / "locks")
        pair = registered(store, target, tmp_path / "pair")
        assert promote(store, "docstrings", 1, expect=None).ok
        found = champion(url, "docstrings")
        assert found is not None
        place_here = download(found, tmp_path / "served")
        stored = tmp_path / "pair" / "draft" / "model.safetensors"
        assert (place_here / "draft" / "model.safetensors").read_bytes() == stored.read_bytes()
        keys = [
            line.split("</Key>")[0] for line in httpx.get(f"{s3}/pairs").text.split("<Key>")[1:]
        ]
        (manifest,) = [k for k in keys if k.endswith("pair.json") and pair.model_id in k]
        objects = boto3.client(
            "s3", endpoint_url=s3, aws_access_key_id="x", aws_secret_access_key="x"
        )
        objects.delete_object(Bucket="pairs", Key=manifest)
        with pytest.raises(NotFoundError, match="pair.json"):
            store.manifest(pair)
        with pytest.raises((NotFoundError, StoreError)):
            download(found, tmp_path / "served again")


AUTH = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/auth.db
admin_username = admin
admin_password = {password}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
grant_default_workspace_access = true
auth_cache_ttl_seconds = 60
"""
ADMIN, READER = "admin:a password of admins", "reader:a password of readers"


@pytest.mark.slow  # a server of its own starts
def test_behind_mlflows_log_in_a_reader_may_serve_and_not_promote(
    migrated: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "mlflow"
    home.mkdir()
    database = shutil.copy(migrated, home / "mlflow.db")
    config = home / "auth.ini"
    config.write_text(AUTH.format(folder=home, password=ADMIN.partition(":")[2]))
    secrets = {"MLFLOW_AUTH_CONFIG_PATH": str(config), "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32}
    with mlflow_server(f"sqlite:///{database}", home, "--app-name", "basic-auth", **secrets) as url:

        def known(secret: str) -> None:
            """From now on, MLflow's client shows this name and password."""
            name, _, password = secret.partition(":")
            monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)

        name, _, password = READER.partition(":")
        httpx.post(
            f"{url}/api/2.0/mlflow/users/create",
            json={"username": name, "password": password},
            headers=header(ADMIN),
        ).raise_for_status()
        store = Store(url, locks=tmp_path / "locks")
        known(ADMIN)
        registered(store, target, tmp_path / "pair")
        known(READER)
        with pytest.raises(StoreError, match="refused"):
            promote(store, "docstrings", 1, expect=None)
        known(ADMIN)
        assert promote(store, "docstrings", 1, expect=None).ok

        with pytest.raises(StoreError, match="answers 401 .*check the URL and the token"):
            champion(url, "docstrings")
        found = champion(url, "docstrings", token=READER)
        assert found is not None
        assert (download(found, tmp_path / "served", token=READER) / "pair.json").is_file()


VERSIONS = 10_000


def test_of_ten_thousand_versions_what_is_shown_takes_a_few_queries(
    three: Store, tmp_path: Path
) -> None:
    promote(three, "docstrings", 1, expect=None)
    counted: list[str] = []

    def note(*call: object) -> None:
        counted.append(str(call[2]))

    before = queries(three, note, counted)
    database = database_of(three.url)
    assert database is not None
    crowd(database, "docstrings", first=4, last=VERSIONS)
    after = queries(three, note, counted)
    assert after <= before + 2 * 4  # champion and candidate are no longer among the newest
    state = three.describe("docstrings")
    assert len(state.pairs) == LISTED + 2  # and the champion and the candidate
    assert state.pairs[0].version == VERSIONS
    champion = state.named("champion")
    assert champion is not None
    assert champion.version == 1
    assert state.warnings == ()


@pytest.mark.slow  # makes a database
def test_the_bench_looks_at_as_many_versions_as_it_says(tmp_path: Path) -> None:
    found = looks(tmp_path, versions=120, turns=1)
    assert {(look.versions, look.turns) for look in found} == {(120, 1)}
    assert all(look.seconds > 0 for look in found)
    store = Store(f"sqlite:///{tmp_path / '120.db'}")
    assert len(store.pairs("crowded")) == 120


def queries(store: Store, note: Callable[..., None], counted: list[str]) -> int:
    """How many statements `describe` takes."""
    counted.clear()
    event.listen(Engine, "before_cursor_execute", note)
    try:
        store.describe("docstrings")
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len([statement for statement in counted if statement.lower().startswith("select")])


def test_a_registry_full_of_foreign_models_is_left_alone(
    three: Store, target: Path, tmp_path: Path
) -> None:
    client = three.client
    for number in range(20):
        client.create_registered_model(f"somebodys-{number}")
        client.create_model_version(f"somebodys-{number}", source=str(tmp_path), run_id="0" * 32)
    client.set_registered_model_alias("somebodys-3", "champion", "1")
    assert [pair.version for pair in three.pairs("docstrings")] == [3, 2, 1]
    with pytest.raises(StoreError, match="somebodys-3 is a registered model that Paceline did not"):
        registered(three, target, tmp_path / "pair", pairing="somebodys-3")
    assert client.get_registered_model("somebodys-3").aliases["champion"] in (1, "1")
    client.create_registered_model("made-for-us")
    assert registered(three, target, tmp_path / "pair", pairing="made-for-us").version == 1
