from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.errors import DigestError, ManifestError
from registry.manifest import (
    PairManifest,
    pair_id,
    read_manifest,
    verify_files,
    with_files,
    write_manifest,
)
from tests.registry.conftest import manifest_of, pair_files


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return pair_files(tmp_path / "pair", "head")


@pytest.fixture
def manifest(target: Path, files: Path) -> PairManifest:
    return with_files(manifest_of(target, files, "head"), files)


def test_a_manifest_comes_back_from_disk_as_it_was_written(
    manifest: PairManifest, files: Path
) -> None:
    write_manifest(manifest, files)
    assert read_manifest(files) == manifest
    assert [path.name for path in files.iterdir() if "partial" in path.name] == []


def test_a_pair_is_named_by_release_kind_and_draft(manifest: PairManifest) -> None:
    parts = (manifest.release.digest, manifest.draft.kind, manifest.draft.digest)
    assert manifest.pair_id == pair_id(*parts)
    assert manifest.pair_id.startswith("p-")
    assert len(manifest.pair_id) == 18
    for changed in range(3):
        assert pair_id(*[p + "x" if n == changed else p for n, p in enumerate(parts)]) != pair_id(
            *parts
        )


def test_with_other_adapters_it_is_another_pair(manifest: PairManifest) -> None:
    one = replace(manifest, adapters={"law": "a" * 64, "tax": "b" * 64})
    assert one.pair_id == replace(one, adapters=dict(reversed(list(one.adapters.items())))).pair_id
    swapped = replace(manifest, adapters={"law": "b" * 64, "tax": "a" * 64})
    changed = replace(manifest, adapters={"law": "a" * 64})
    assert len({one.pair_id for one in (manifest, one, swapped, changed)}) == 4
    assert replace(one, adapter_uris={"law": "/elsewhere"}).pair_id == one.pair_id


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(stored: dict[str, Any]) -> None:
        for key in path[:-1]:
            stored = stored[key]
        stored[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(stored: dict[str, Any]) -> None:
        for key in path[:-1]:
            stored = stored[key]
        del stored[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (put("schema", value=2), "schema: got 2, wanted 1"),
        (put("pair_id", value="p-0000000000000000"), "pair_id: got 'p-0000000000000000'"),
        (put("release", "weights", value="xyz"), "release.weights: got 'xyz', wanted 64 hex"),
        (put("draft", "digest", value="A" * 64), "draft.digest: got .*wanted 64 hex"),
        (put("release", "digest", value=7), "release: digest: got 7, wanted str"),
        (put("draft", "kind", value="eagle"), "draft.kind: got 'eagle', wanted one of model"),
        (put("context_measured", value=-1), "context_measured: got -1, wanted 0 to 512"),
        (put("context_measured", value=513), "context_measured: got 513, wanted 0 to 512"),
        (put("context_measured", value=True), "context_measured: got True, wanted int"),
        (put("making", "prompts_train", value="x"), "prompts_train: got 'x', wanted"),
        (put("making", "prompts_train", value=[1]), "prompts_train: got 1, wanted str"),
        (put("colour", value="blue"), "colour: is no field of PairManifest"),
        (put("release", "colour", value="blue"), "colour: is no field of Release"),
        (put("adapter_uris", value={"law": "/law"}), "adapter_uris: got 'law', which is none"),
        (drop("release"), "release: is missing"),
        (drop("draft", "digest"), "digest: is missing"),
        (put("release", value=[]), r"release: got \[\], wanted an object"),
        (put("files", value={"../x": "0" * 64}), "files: got '../x', wanted a path inside"),
        (put("files", value={"/etc/x": "0" * 64}), "files: got '/etc/x'"),
        (put("files", value={"draft/x": "0"}), "files.*got '0', wanted 64 hex"),
    ],
)
def test_an_impossible_manifest_is_refused_and_the_fault_is_named(
    manifest: PairManifest, files: Path, change: Callable[[dict[str, Any]], None], fault: str
) -> None:
    path = write_manifest(manifest, files)
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))
    with pytest.raises(ManifestError, match=fault):
        read_manifest(files)


def test_a_manifest_cut_short_or_missing_is_refused(manifest: PairManifest, files: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(files)
    path = write_manifest(manifest, files)
    path.write_text(path.read_text()[:100])
    with pytest.raises(ManifestError, match="is not JSON"):
        read_manifest(files)


def test_a_full_disk_leaves_the_old_manifest(
    manifest: PairManifest, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_manifest(manifest, files)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("registry.manifest.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_manifest(manifest, files)
    assert path.read_bytes() == before
    assert [path.name for path in files.iterdir() if "partial" in path.name] == []


def test_a_missing_or_changed_file_is_named(manifest: PairManifest, files: Path) -> None:
    verify_files(manifest, files)
    weights = files / "draft" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DigestError, match="model.safetensors: got sha256"):
        verify_files(manifest, files)
    verify_files(manifest, files, under="report/")
    weights.unlink()
    with pytest.raises(DigestError, match="model.safetensors: is missing"):
        verify_files(manifest, files, under="draft/")
