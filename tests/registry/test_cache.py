from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from registry.cache import SETTLED_SECONDS, DigestCache
from registry.fingerprint import fingerprint
from registry.tensors import Tensor
from tests.registry import tiny


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tensors whose bytes were read, as they are."""
    names: list[str] = []
    whole = Tensor.chunks

    def chunks(tensor: Tensor) -> object:
        names.append(tensor.name)
        return whole(tensor)

    monkeypatch.setattr(Tensor, "chunks", chunks)
    return names


def aged(folder: Path) -> Path:
    """The folder as if it had been written an hour ago."""
    for path in folder.iterdir():
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 3_600 * 10**9))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> DigestCache:
    return DigestCache(tmp_path / "cache" / "digests.json")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return aged(tiny.target(tmp_path / "target"))


def test_a_folder_that_was_read_is_not_read_again(
    target: Path, cache: DigestCache, read: list[str]
) -> None:
    first = fingerprint(target, cache=cache)
    assert sorted(read) == sorted(tiny.arrays())
    read.clear()
    assert fingerprint(target, cache=cache) == first
    assert read == []
    assert fingerprint(target) == first  # who registers passes no cache, and every byte is read
    assert sorted(read) == sorted(tiny.arrays())


def rewritten(folder: Path) -> None:
    tiny.target(folder, seed=1)


def rewritten_with_its_old_time(folder: Path) -> None:
    path = folder / "model.safetensors"
    before = path.stat()
    tiny.target(folder, seed=1)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_another_file(folder: Path) -> None:
    other = tiny.target(folder.parent / "other", seed=1)
    os.replace(other / "model.safetensors", folder / "model.safetensors")


@pytest.mark.parametrize(
    "change", [rewritten, rewritten_with_its_old_time, replaced_by_another_file]
)
def test_changed_weights_are_read_again(
    target: Path, cache: DigestCache, change: Callable[[Path], None]
) -> None:
    before = fingerprint(target, cache=cache)
    change(target)
    assert fingerprint(target, cache=cache).weights == fingerprint(target).weights != before.weights


def test_a_file_written_this_moment_is_not_kept(
    tmp_path: Path, cache: DigestCache, read: list[str]
) -> None:
    fresh = tiny.target(tmp_path / "fresh")
    fingerprint(fresh, cache=cache)
    read.clear()
    fingerprint(fresh, cache=cache)
    assert read  # it may be written again within one tick of the file system's clock
    later = DigestCache(cache.path, clock=lambda: fresh.stat().st_mtime + 10 * SETTLED_SECONDS)
    fingerprint(fresh, cache=later)
    read.clear()
    fingerprint(fresh, cache=later)
    assert read == []


def test_a_file_that_changed_while_it_was_read_is_not_kept(
    target: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Tensor.content_digest

    def meanwhile(tensor: Tensor, *rest: object) -> str:
        digest = whole(tensor)
        path = target / "model.safetensors"
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 1))  # changed, and not of this moment
        return digest

    with monkeypatch.context() as patched:
        patched.setattr(Tensor, "content_digest", meanwhile)
        fingerprint(target, cache=cache)
    assert not cache.path.exists()


def in_the_hubs_cache(target: Path, place: Path, name: str) -> Path:
    """The target as a snapshot of the hub's cache, its weights the blob `name`."""
    snapshot = place / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    (place / "blobs").mkdir()
    target.rename(snapshot)
    weights = snapshot / "model.safetensors"
    weights.rename(place / "blobs" / name)
    weights.symlink_to(Path("../../blobs") / name)
    return snapshot


def test_a_file_is_known_by_the_checksum_its_hub_published(
    tmp_path: Path, cache: DigestCache, read: list[str]
) -> None:
    """Wherever it lies and whenever it was fetched."""
    name, found = "ab" * 32, []
    for place in ("one", "two"):
        target = aged(tiny.target(tmp_path / "made"))
        snapshot = in_the_hubs_cache(target, tmp_path / place, name)
        read.clear()
        found.append(fingerprint(snapshot, cache=cache))
    assert read == []
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: '{"schema": 1, "files": []}',
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda text: json.dumps(
            {"schema": 1, "files": {key: 7 for key in json.loads(text)["files"]}}
        ),
        lambda text: text.replace('"F32"', '"F16"'),
        lambda text: text.replace('"F32", ', ""),
    ],
)
def test_a_damaged_cache_is_an_empty_one(
    target: Path, cache: DigestCache, read: list[str], damage: Callable[[str], str]
) -> None:
    first = fingerprint(target, cache=cache)
    cache.path.write_text(damage(cache.path.read_text()))
    read.clear()
    assert fingerprint(target, cache=cache) == first
    assert read


def test_many_at_once_leave_a_cache_that_is_whole(tmp_path: Path, cache: DigestCache) -> None:
    folders = [aged(tiny.target(tmp_path / str(seed), seed=seed)) for seed in range(8)]
    with ThreadPoolExecutor(8) as all_at_once:
        found = list(all_at_once.map(lambda folder: fingerprint(folder, cache=cache), folders))
    assert found == [fingerprint(folder) for folder in folders]
    assert json.loads(cache.path.read_text())["files"]
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]
    assert [fingerprint(folder, cache=cache) for folder in folders] == found


def test_only_the_files_seen_last_are_kept(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.cache.KEPT_FILES", 2)
    for seed in range(4):
        fingerprint(aged(tiny.target(tmp_path / str(seed), seed=seed)), cache=cache)
    kept = json.loads(cache.path.read_text())["files"]
    assert [Path(key.rpartition(":")[2]).parent.name for key in kept] == ["3", "2"]


def test_a_cache_that_cannot_be_written_costs_only_time(target: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fingerprint(target, cache=DigestCache(tmp_path / "file" / "c.json")) == fingerprint(
        target
    )
