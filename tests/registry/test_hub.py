"""Releases in a repository on the hub, against a stand-in of its API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.errors import NotFoundError, RegistryError, SourceAwayError
from registry.fingerprint import fingerprint
from registry.hub import fetch_commit, head
from tests.hub import Hub, files_of, served
from tests.registry import tiny

NAME = "someone/tiny"


@pytest.fixture
def hub(target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # tests never leave this machine
    with served(Hub.of(NAME, target)) as running:
        yield running


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "second", seed=1)


def test_a_branch_is_followed_and_each_commit_is_one_release(
    hub: Hub, second: Path, target: Path, tmp_path: Path
) -> None:
    first = head(NAME, "main", endpoint=hub.url)
    assert (first.place, first.pointed) == (f"{NAME}@{hub.commit}", True)
    assert head(NAME, "main", endpoint=hub.url).id == first.id
    hub.push(files_of(second))
    later = head(NAME, "main", endpoint=hub.url)
    assert later.id != first.id
    for arrival, folder in ((first, target), (later, second)):
        fetched = fetch_commit(arrival.place, tmp_path / arrival.id, endpoint=hub.url)
        assert fingerprint(fetched) == fingerprint(folder)


def test_another_branch_and_a_commit_are_followed_too(hub: Hub, second: Path) -> None:
    hub.branches["stable"] = earlier = hub.commit
    hub.push(files_of(second))
    assert head(NAME, "stable", endpoint=hub.url).place == f"{NAME}@{earlier}"
    assert head(NAME, earlier, endpoint=hub.url).place == f"{NAME}@{earlier}"
    assert head(NAME, "main", endpoint=hub.url).place == f"{NAME}@{hub.commit}"


def test_a_branch_that_moves_while_it_is_fetched_changes_nothing(
    hub: Hub, second: Path, target: Path, tmp_path: Path
) -> None:
    hub.moves = files_of(second)
    arrival = head(NAME, "main", endpoint=hub.url)
    fetched = fetch_commit(arrival.place, tmp_path / "fetched", endpoint=hub.url)
    assert head(NAME, "main", endpoint=hub.url).id != arrival.id, "it moved meanwhile"
    assert fingerprint(fetched) == fingerprint(target)


def test_what_could_run_code_is_not_fetched_and_nothing_else_is_left(
    hub: Hub, tmp_path: Path
) -> None:
    hub.push({**hub.files, "model.py": b"print()", "pytorch_model.bin": b"x", "README.md": b"x"})
    place = head(NAME, "main", endpoint=hub.url).place
    fetched = fetch_commit(place, tmp_path / "fetched", endpoint=hub.url)
    assert {path.suffix for path in fetched.iterdir()} == {".json", ".safetensors"}


@pytest.mark.slow  # the hub's client waits for seconds before it tries again
def test_a_fetch_that_broke_off_goes_on(hub: Hub, target: Path, tmp_path: Path) -> None:
    hub.cut.update(f"{name}" for name in hub.files)
    place = head(NAME, "main", endpoint=hub.url).place
    for _ in range(len(hub.files) + 2):
        try:
            fetched = fetch_commit(place, tmp_path / "fetched", endpoint=hub.url)
        except RegistryError:
            continue
        break
    assert fingerprint(fetched) == fingerprint(target)


@pytest.mark.parametrize(("name", "revision"), [("someone/else", "main"), (NAME, "nowhere")])
def test_what_is_not_there_is_told_as_that(hub: Hub, name: str, revision: str) -> None:
    with pytest.raises(NotFoundError, match="check the name"):
        head(name, revision, endpoint=hub.url)


def test_a_private_repository_wants_a_token(hub: Hub) -> None:
    hub.token = "hush"
    with pytest.raises(NotFoundError, match="PACELINE_HUB_TOKEN"):
        head(NAME, "main", endpoint=hub.url)
    assert head(NAME, "main", endpoint=hub.url, token="hush").signature == hub.commit


def test_a_hub_that_is_away_is_away(hub: Hub, tmp_path: Path) -> None:
    arrival = head(NAME, "main", endpoint=hub.url)
    away = "http://127.0.0.1:9"
    with pytest.raises(SourceAwayError):
        head(NAME, "main", endpoint=away)
    with pytest.raises(SourceAwayError):
        fetch_commit(arrival.place, tmp_path / "fetched", endpoint=away)
