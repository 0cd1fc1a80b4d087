"""However a release is written into a folder, it counts once its last byte is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry.errors import FolderError
from registry.fingerprint import fingerprint
from registry.incoming import candidates, is_adapter, signature, unfinished, written
from tests.registry import tiny

PIECES = 7  # that a file is written in


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in three shards with an index."""
    folder = tiny.target(tmp_path_factory.mktemp("model") / "target")
    tiny.shard(folder, tiny.arrays(), 3)
    return folder


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.adapter(tmp_path_factory.mktemp("adapter") / "lora")


def pieces(source: Path, to: Path) -> Iterator[None]:
    """Write a file piece by piece; the last piece is written by whoever goes on after it."""
    content = source.read_bytes()
    with to.open("wb") as out:
        for n in range(PIECES):
            out.write(content[n * len(content) // PIECES : (n + 1) * len(content) // PIECES])
            out.flush()
            if n < PIECES - 1:
                yield


def one_by_one(source: Path, to: Path, order: Callable[[Path], tuple[bool, str]]) -> Iterator[None]:
    to.mkdir()
    for path in sorted(source.iterdir(), key=order):
        yield
        yield from pieces(path, to / path.name)


def in_order(source: Path, to: Path) -> Iterator[None]:
    yield from one_by_one(source, to, lambda path: (False, path.name))


def index_first(source: Path, to: Path) -> Iterator[None]:
    yield from one_by_one(source, to, lambda path: (".index." not in path.name, path.name))


def weights_first(source: Path, to: Path) -> Iterator[None]:
    yield from one_by_one(source, to, lambda path: (path.suffix != ".safetensors", path.name))


def like_rsync(source: Path, to: Path) -> Iterator[None]:
    to.mkdir()
    for path in sorted(source.iterdir()):
        yield
        beside = to / f".{path.name}.a1B2c3"
        yield from pieces(path, beside)
        yield
        os.replace(beside, to / path.name)


def like_a_download(source: Path, to: Path) -> Iterator[None]:
    to.mkdir()
    for path in sorted(source.iterdir()):
        yield
        beside = to / f"{path.name}.incomplete"
        yield from pieces(path, beside)
        yield
        os.replace(beside, to / path.name)


def renamed_whole(source: Path, to: Path) -> Iterator[None]:
    beside = to.with_name(f".{to.name}.copy")
    yield from in_order(source, beside)
    yield
    os.replace(beside, to)


def linked_in(source: Path, to: Path) -> Iterator[None]:
    beside = to.with_name(".blobs")
    yield from in_order(source, beside)
    yield
    to.symlink_to(beside)


WRITERS = [
    *(in_order, index_first, weights_first, like_rsync, like_a_download, renamed_whole, linked_in),
]
OPTIONAL = ("generation_config.json", "tokenizer_config.json")  # content says nothing of these


@pytest.mark.parametrize("kind", ["model", "adapter"])
@pytest.mark.parametrize("write", WRITERS)
def test_a_release_is_whole_with_its_last_byte_and_never_before(
    write: Callable[[Path, Path], Iterator[None]],
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(*OPTIONAL)
    shutil.copytree(request.getfixturevalue(kind), source, ignore=ignored)
    place = tmp_path / "place"
    place.mkdir()
    states = []
    for _ in write(source, place / "release"):
        states.append([unfinished(folder) for folder in candidates(place)])
    (folder,) = candidates(place)
    assert unfinished(folder) == ""
    assert is_adapter(folder) == (kind == "adapter")
    assert all(why for state in states for why in state), states
    assert len(states) > PIECES


def test_a_release_rewritten_in_place_is_not_whole_meanwhile_and_has_another_signature(
    model: Path, tmp_path: Path
) -> None:
    place = shutil.copytree(model, tmp_path / "model")
    other = tiny.target(tmp_path / "other", seed=1)
    tiny.shard(other, tiny.arrays(1), 3)
    seen = {signature(place)}
    for shard in sorted(other.glob("*.safetensors")):
        for _ in pieces(shard, place / shard.name):
            assert "truncated" in unfinished(place) or "bytes" in unfinished(place)
            seen.add(signature(place))
        assert signature(place) not in seen
        seen.add(signature(place))
    assert unfinished(place) == ""
    assert len(seen) > PIECES


def test_a_marker_is_waited_for_where_one_is_named(model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "model")
    assert unfinished(folder, marker="_SUCCESS") == "_SUCCESS is not there yet"
    (folder / "_SUCCESS").touch()
    assert unfinished(folder, marker="_SUCCESS") == ""


def test_what_would_run_code_is_whole_and_its_fingerprint_refuses_it(tmp_path: Path) -> None:
    folder = tiny.target(tmp_path / "model", auto_map={"AutoModel": "x.Y"})
    assert unfinished(folder) == ""
    with pytest.raises(FolderError, match="auto_map"):
        fingerprint(folder)


def test_a_place_is_one_release_or_holds_several(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for name in ("1", "2", ".hidden", "3.partial"):
        shutil.copytree(model, place / name)
    (place / "notes.txt").write_text("no folder")
    (place / "current").symlink_to("2")
    (place / "self").symlink_to(".")
    (place / "away").symlink_to(model)
    assert candidates(place) == [place / "1", place / "2"]
    (tmp_path / "pointer").symlink_to(place / "1")
    assert candidates(tmp_path / "pointer") == [place / "1"]
    assert candidates(place / "2") == [place / "2"]
    with pytest.raises(FolderError, match="got no folder"):
        candidates(tmp_path / "none")


def test_a_folder_of_endless_files_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.incoming.MOST_FILES", 3)
    for n in range(4):
        (tmp_path / str(n)).touch()
    for look in (candidates, unfinished, signature, written):
        with pytest.raises(FolderError, match="more than 3 files"):
            look(tmp_path)
