"""A following server serves its champion's adapters: those that the pair was judged with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from registry.adapters import fingerprint_adapter
from registry.manifest import read_manifest, write_manifest
from serving.app import create_app
from tests.serving.following import Scene, lived
from tests.serving.registry_stand_in import PAIRING, StandIn, stand_in
from tests.toys import toy_adapter_folder


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture
def law(target_folder: Path, tmp_path: Path) -> Path:
    return toy_adapter_folder(target_folder, tmp_path / "law", r=2, target_modules=["q_proj"])


@pytest.fixture
def tax(target_folder: Path, tmp_path: Path) -> Path:
    return toy_adapter_folder(
        target_folder, tmp_path / "tax", seed=1, r=2, target_modules=["q_proj"]
    )


async def models(scene: Scene) -> list[str]:
    """What clients are told that they can ask for."""
    app = httpx.ASGITransport(create_app(scene.service))
    async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1:8000") as client:
        names = [one["id"] for one in (await client.get("/v1/models")).json()["data"]]
        for name in names:
            assert (await client.get(f"/v1/models/{name}")).status_code == 200
        return names


def test_a_pairs_adapters_are_served_by_name_and_change_with_the_champion(
    registry: StandIn, target_folder: Path, tmp_path: Path, law: Path, tax: Path
) -> None:
    one = registry.register(target_folder, "ngram", {"law": law})
    two = registry.register(target_folder, "ngram", {"law": law, "tax": tax})
    other = registry.register(target_folder, "none", {"law": law, "tax": tax})
    without = registry.register(target_folder, "ngram")
    assert len({registry.pair_id(n) for n in (one, two, without)}) == 3, "they are three pairs"

    async def life(scene: Scene) -> None:
        assert await scene.look() is None
        assert await models(scene) == [PAIRING]
        registry.promote(one)
        assert await scene.look() == registry.pair_id(one)
        assert await models(scene) == [PAIRING, "law"]
        assert scene.loaded.adapters == {"law": fingerprint_adapter(law)}
        registry.promote(two)
        assert await scene.look() == registry.pair_id(two)
        assert await models(scene) == [PAIRING, "law", "tax"]
        host = scene.loaded.host
        registry.promote(other)
        assert await scene.look() == registry.pair_id(other)
        assert scene.loaded.host is host, "a swap of the draft alone leaves the target where it is"
        registry.promote(without)
        assert await scene.look() == registry.pair_id(without)
        assert await models(scene) == [PAIRING]
        assert scene.failed == []

    lived(tmp_path, registry, life)


def test_an_adapter_that_changed_since_it_was_judged_is_seen_and_not_served(
    registry: StandIn, target_folder: Path, tmp_path: Path, law: Path, tax: Path
) -> None:
    served = registry.register(target_folder, "ngram")
    judged = registry.register(target_folder, "ngram", {"law": law})
    nowhere = registry.register(target_folder, "none", {"tax": tax})
    place = registry.place(nowhere)
    write_manifest(replace(read_manifest(place), adapter_uris={}), place)
    kept = shutil.copytree(law, tmp_path / "kept")

    async def life(scene: Scene) -> None:
        registry.promote(served)
        assert await scene.look() == registry.pair_id(served)
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            shutil.copy2(tax / name, law / name)
        registry.promote(judged)
        assert await scene.look() == registry.pair_id(served), "what is served serves on"
        assert "the adapter law in" in scene.failed[0]
        assert f"was judged with {fingerprint_adapter(kept)[:12]}: put that back" in scene.failed[0]
        shutil.rmtree(law)
        assert await scene.look(after_seconds=3600) == registry.pair_id(served)
        shutil.copytree(kept, law)
        scene.follower.hurry()
        assert await scene.look() == registry.pair_id(judged)
        registry.promote(nowhere)
        assert await scene.look() == registry.pair_id(judged)
        assert "does not say where that lives" in scene.failed[-1]

    lived(tmp_path, registry, life)
