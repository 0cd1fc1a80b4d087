"""What is written between a look at it and its load is not served as what it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.errors import ChangedFolderError
from registry.stamps import Stamp, unchanged
from serving.arms import static_arm, trial_arms
from serving.loading import Host, Loaded
from serving.settings import ServeSettings
from speculation.target import load_target
from tests.serving.following import Scene, lived
from tests.serving.registry_stand_in import StandIn, stand_in
from tests.toys import toy_target_folder

SAID = "model.safetensors was changed after it was looked at"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "registry") as registry:
        yield registry


def written(folder: Path) -> bytes:
    """Change one bit of the weights; what was there."""
    file = folder / "model.safetensors"
    stored = file.read_bytes()
    file.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    return stored


def test_a_release_that_is_written_while_it_is_loaded_is_not_served_until_it_is_looked_at_again(
    registry: StandIn, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = toy_target_folder(tmp_path / "other", seed=5, layers=1)
    versions = registry.register(target_folder, "ngram"), registry.register(other, "ngram")

    async def life(scene: Scene) -> None:
        old = registry.promote(versions[0])
        await scene.look()
        kept: list[bytes] = []

        def late(folder: Path, **more: Any) -> Any:
            kept.append(written(folder))  # its fingerprint was taken a moment ago
            return load_target(folder, **more)

        monkeypatch.setattr("serving.loading.load_target", late)
        new = registry.promote(versions[1])
        assert await scene.look() == old
        assert SAID in scene.failed[0]
        assert len(scene.alarms) == 1
        monkeypatch.setattr("serving.loading.load_target", load_target)
        (other / "model.safetensors").write_bytes(kept[0])
        assert await scene.look(after_seconds=10) == new  # nobody had to ask
        assert (
            scene.loaded.host.release.digest
            == Host.load(other, scene.service.settings).release.digest
        )

    lived(tmp_path, registry, life)


@pytest.mark.parametrize("trial", [False, True])
def test_a_draft_that_is_written_before_it_is_loaded_is_refused(
    target_folder: Path, draft_folder: Path, tmp_path: Path, *, trial: bool
) -> None:
    draft = shutil.copytree(draft_folder, tmp_path / "draft")
    settings = ServeSettings(home=tmp_path, target=target_folder)
    host = Host.load(target_folder, settings)
    looked = trial_arms(host, {"a": str(draft)}) if trial else {"a": static_arm(host, str(draft))}
    assert Loaded.prepare(host, looked, settings).own.draft == draft
    written(draft)
    with pytest.raises(ChangedFolderError, match=SAID):
        Loaded.prepare(host, looked, settings)


def test_files_that_no_load_reads_may_change(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    stamp = Stamp.of(tmp_path)
    (tmp_path / "training.log").write_text("a line")
    (tmp_path / "checkpoint-1").mkdir()
    with unchanged(stamp):
        pass
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ChangedFolderError, match=r"tokenizer\.json"), unchanged(stamp):
        raise ValueError("half a file is no fault of the model's")
    with pytest.raises(ValueError, match="its own"), unchanged(None):
        raise ValueError("its own")
