"""A target of the user's own: a folder, or a repository on the hub; what is no model is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.demo_real import real_story
from registry.fingerprint import fingerprint
from tests.hub import Hub, served
from tests.toys import toy_target_folder

NAME = "someone/toy"


def first_release(target: str, out: Path) -> Path:
    story = real_story(out.parent, target, from_scratch=False, prompts=None)
    return story.first_release(out)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    folder = toy_target_folder(tmp_path / "toy")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle that nobody may load")
    (folder / "README.md").write_text("not the model")
    return folder


@pytest.fixture
def hub(toy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # tests never leave this machine
    with served(Hub.of(NAME, toy)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_a_folder_is_copied_without_what_is_not_safe_to_load(toy: Path, tmp_path: Path) -> None:
    out = first_release(str(toy), tmp_path / "home" / "release-1")
    assert fingerprint(out).digest == fingerprint(toy).digest
    assert not (out / "pytorch_model.bin").exists()


def test_a_repository_on_the_hub_is_the_same_release_as_its_folder(
    hub: Hub, toy: Path, tmp_path: Path
) -> None:
    out = first_release(NAME, tmp_path / "home" / "release-1")
    assert fingerprint(out).digest == fingerprint(toy).digest
    fetched = " ".join(hub.asked)
    assert "model.safetensors" in fetched
    assert "pytorch_model.bin" not in fetched
    assert not list((tmp_path / "home").glob(".*")), "nothing half done is left"


def test_a_download_that_breaks_off_is_gone_on_with_or_leaves_nothing(
    hub: Hub, toy: Path, tmp_path: Path
) -> None:
    hub.cut.add("model.safetensors")
    place = tmp_path / "home" / "release-1"
    try:
        first_release(NAME, place)
    except ValueError:
        assert not place.exists()
        first_release(NAME, place)
    assert not hub.cut, "it did break off"
    fetched = [asked for asked in hub.asked if asked.startswith("GET ") and "model.safe" in asked]
    assert len(fetched) >= 2
    assert fingerprint(place).digest == fingerprint(toy).digest


def test_a_name_that_is_no_repository_says_what_was_wanted(hub: Hub, tmp_path: Path) -> None:
    place = tmp_path / "home" / "release-1"
    with pytest.raises(ValueError, match="someone/else.*wanted a model folder or the name"):
        first_release("someone/else", place)
    assert not place.exists()


def test_a_repository_without_weights_is_refused_and_not_kept(hub: Hub, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    place = tmp_path / "home" / "release-1"
    with pytest.raises(ValueError, match="safetensors"):
        first_release(NAME, place)
    assert not place.exists()
