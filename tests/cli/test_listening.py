"""A webhook that the registry signed has the worker look sooner; whatever else comes does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.listening import listening
from configuration.hooks import HookListener
from configuration.settings import Settings
from evaluation.endpoints import free_port

SECRET, BODY = "s" * 20, b'{"entity": "model_version_alias"}'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, hooks=HookListener(port=free_port()), hook_secret=SECRET)


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with listening(settings) as heard_at:
        yield heard_at


def signed(delivery: str = "d-1", body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    sent = f"{time.time():.0f}"
    content = f"{delivery}.{sent}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).digest()
    return {
        "X-MLflow-Signature": "v1," + base64.b64encode(digest).decode(),
        "X-MLflow-Delivery-Id": delivery,
        "X-MLflow-Timestamp": sent,
    }


def hints(home: Path) -> int:
    return len(list((home / "flows" / "hints").glob("*.json")))


def post(url: str, headers: dict[str, str], body: bytes = BODY) -> int:
    return httpx.post(url, content=body, headers=headers, trust_env=False).status_code


def test_a_signed_delivery_hurries_a_look_and_once(url: str, tmp_path: Path) -> None:
    first = signed()
    assert [post(url, first), post(url, first)] == [204, 204]
    assert hints(tmp_path) == 1
    assert post(url, signed("../../d-2")) == 204
    assert hints(tmp_path) == 2
    assert not list(tmp_path.parent.glob("d-2*")), "no name of theirs is a path of ours"


def test_what_is_forged_changed_or_too_long_does_nothing(url: str, tmp_path: Path) -> None:
    assert post(url, {}) == 401
    assert post(url, signed(secret="t" * 20)) == 401
    assert post(url, signed(), BODY + b" ") == 401
    assert post(url, signed(), b"x" * (64 * 1024 + 1)) == 413
    assert post(url + "/more", signed()) == 404
    assert httpx.get(url, trust_env=False).status_code == 501
    assert hints(tmp_path) == 0


def test_nobody_listens_where_no_port_or_no_secret_is_set(tmp_path: Path) -> None:
    for settings in (
        Settings(home=tmp_path, hook_secret=SECRET),
        Settings(home=tmp_path, hooks=HookListener(port=free_port())),
    ):
        with listening(settings) as heard_at:
            assert heard_at == ""


@pytest.mark.slow  # real servers
def test_an_alias_that_moves_is_heard_of_from_a_real_registry_over_its_restart(
    settings: Settings, url: str, tmp_path: Path
) -> None:
    from cli.programs import WEBHOOKS, key_of
    from registry.schema import prepare_database
    from registry.store import Store
    from registry.subscribing import ensure_webhook
    from tests.registry.conftest import mlflow_server

    place = tmp_path / "mlflow"
    place.mkdir()
    database = f"sqlite:///{place / 'mlflow.db'}"
    prepare_database(database)
    key = {"MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": key_of(place / "webhook.key")}
    made: list[str] = []
    for start in (1, 2):
        with mlflow_server(database, place, **WEBHOOKS, **key) as server:
            store = Store(server)
            if start == 1:
                made = [ensure_webhook(store, url, SECRET) for _ in range(2)]
                store.client.create_registered_model("theirs")
            run = store.client.create_run("0").info
            store.client.create_model_version("theirs", run.artifact_uri, run.run_id)
            for _ in range(300):
                if hints(tmp_path):
                    break
                time.sleep(0.2)
            assert hints(tmp_path) >= 1
            shutil.rmtree(tmp_path / "flows" / "hints")
    assert made[0] == made[1]
