"""Releases that others register in MLflow: an alias as it moves, every version, their files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.errors import FolderError, NotFoundError, StoreError
from registry.fingerprint import fingerprint
from registry.models import every, fetch_model, model_inside, named
from registry.store import Store
from tests.registry import tiny


def version(store: Store, folder: Path, name: str = "summariser") -> int:
    """Register a folder as somebody else would."""
    if not [model for model in store.client.search_registered_models() if model.name == name]:
        store.client.create_registered_model(name)
    made = store.client.create_model_version(name, str(folder))
    return int(made.version)


def test_an_alias_is_followed_as_it_moves_and_back(store: Store, target: Path) -> None:
    store.client.create_registered_model("summariser")
    assert named(store, "summariser", alias="champion") == []
    seen = []
    for number in (version(store, target), version(store, target)):
        store.client.set_registered_model_alias("summariser", "champion", str(number))
        seen += named(store, "summariser", alias="champion")
    store.client.set_registered_model_alias("summariser", "champion", "1")
    (back,) = named(store, "summariser", alias="champion")
    assert [one.place for one in seen] == ["models:/summariser/1", "models:/summariser/2"]
    assert back == seen[0]
    assert back.pointed
    assert back.id != seen[1].id


def test_every_version_is_one_that_no_alias_names(store: Store, target: Path) -> None:
    for _ in range(3):
        version(store, target)
    shown = every(store, "summariser")
    assert {one.place for one in shown} == {f"models:/summariser/{n}" for n in (1, 2, 3)}
    assert not any(one.pointed for one in shown)


def test_a_model_that_was_made_again_counts_anew(store: Store, target: Path) -> None:
    version(store, target)
    (before,) = every(store, "summariser")
    store.client.delete_registered_model("summariser")
    version(store, target)
    (after,) = every(store, "summariser")
    assert (before.place, before.id != after.id) == (after.place, True)


def test_what_is_fetched_is_the_release_that_was_registered(
    store: Store, target: Path, tmp_path: Path
) -> None:
    version(store, target)
    fetched = fetch_model(store, "models:/summariser/1", tmp_path / "fetched")
    assert fingerprint(fetched) == fingerprint(target)


def test_no_model_and_one_of_ours_are_no_sources(store: Store, target: Path) -> None:
    with pytest.raises(StoreError, match="register it first"):
        named(store, "unheard-of", alias="champion")
    store.register_release("docs", target, fingerprint(target))
    with pytest.raises(StoreError, match="keeps for itself"):
        every(store, "docs.target")


def taken_apart(target: Path, into: Path) -> None:
    """As the transformers flavour of MLflow lays it out."""
    shutil.copytree(target, into / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    (into / "components" / "tokenizer").mkdir(parents=True)
    for path in target.glob("tokenizer*"):
        shutil.copy2(path, into / "components" / "tokenizer" / path.name)
    (into / "components" / "tokenizer" / "config.json").write_text("{}")
    (into / "MLmodel").write_text("flavors: {}")


def plain(target: Path, into: Path) -> None:
    shutil.copytree(target, into, dirs_exist_ok=True)


def nested(target: Path, into: Path) -> None:
    shutil.copytree(target, into / "artifacts" / "model")


@pytest.mark.parametrize("lay", [plain, nested, taken_apart])
def test_the_model_is_found_however_a_flavour_lays_it_out(
    lay: Callable[[Path, Path], None], target: Path, tmp_path: Path
) -> None:
    into = tmp_path / "version"
    into.mkdir()
    lay(target, into)
    assert fingerprint(model_inside(into, "v1")) == fingerprint(target)


def test_an_adapter_beside_what_it_adapts_is_the_release(target: Path, tmp_path: Path) -> None:
    into = tmp_path / "version"
    shutil.copytree(target, into / "base")
    lora = tiny.adapter(into / "peft")
    assert model_inside(into, "v1") == lora


def test_what_is_no_model_says_what_was_found(target: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NotFoundError, match="were deleted"):
        model_inside(empty, "models:/x/1")
    (empty / "model.pkl").write_bytes(b"x")
    with pytest.raises(FolderError, match="got none among 1 files"):
        model_inside(empty, "models:/x/1")
    for name in ("a", "b"):
        shutil.copytree(target, empty / name)
    with pytest.raises(FolderError, match="got a, b among"):
        model_inside(empty, "models:/x/1")


@pytest.mark.slow  # a real server
def test_a_server_is_watched_and_fetched_from_and_a_deleted_model_is_told(
    server: str, target: Path, tmp_path: Path
) -> None:
    store = Store(server)
    run = store.client.create_run("0")
    store.client.log_artifacts(run.info.run_id, str(target), "model")
    store.client.create_registered_model("served-model")
    store.client.create_model_version(
        "served-model", f"runs:/{run.info.run_id}/model", run.info.run_id
    )
    store.client.set_registered_model_alias("served-model", "production", "1")
    (seen,) = named(store, "served-model", alias="production")
    fetched = fetch_model(store, seen.place, tmp_path / "fetched")
    assert fingerprint(fetched) == fingerprint(target)
    logged = store.client.create_logged_model("0", name="gone")
    source, model = f"models:/{logged.model_id}", logged.model_id
    store.client.create_model_version("served-model", source, model_id=model)
    with pytest.raises(NotFoundError):
        fetch_model(store, "models:/served-model/2", tmp_path / "gone")
