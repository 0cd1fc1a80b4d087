from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from registry.compatibility import fits_draft
from registry.errors import DigestError, FolderError, ManifestError
from registry.exporting import export_pair, import_pair
from registry.fingerprint import fingerprint_draft
from registry.manifest import read_manifest, verify_files, with_files, write_manifest
from tests.registry import tiny
from tests.registry.conftest import manifest_of, pair_files
from tests.toys import toy_draft_folder, toy_target_folder


@pytest.fixture
def pair(target: Path, tmp_path: Path) -> Path:
    files = pair_files(tmp_path / "pair", "head")
    write_manifest(with_files(manifest_of(target, files, "head"), files), files)
    return files


@pytest.fixture
def exported(pair: Path, tmp_path: Path) -> Path:
    return export_pair(pair, tmp_path / "exported").folder


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_exported_pair_is_a_hugging_face_folder_with_its_manifest(
    pair: Path, exported: Path
) -> None:
    assert tree(exported) == {
        *("config.json", "model.safetensors", "pair.json"),
        *("report/report.json", "report/hazards.png", "training/curves.json"),
    }
    manifest = read_manifest(exported)
    assert manifest == read_manifest(pair)
    assert fits_draft(manifest, fingerprint_draft(exported)).ok


def test_an_exported_pair_comes_back_whole(
    pair: Path, exported: Path, target: Path, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(target, tmp_path / "elsewhere")
    carried, answer = import_pair(exported, tmp_path / "back", target=elsewhere)
    assert answer.ok
    assert carried.left == ()
    assert tree(carried.folder) == tree(pair)
    manifest = read_manifest(carried.folder)
    assert manifest == replace(read_manifest(pair), release_uri=str(elsewhere.resolve()))
    verify_files(manifest, carried.folder)


def test_a_pair_without_weights_travels_too(target: Path, tmp_path: Path) -> None:
    files = pair_files(tmp_path / "ngram", "ngram")
    write_manifest(with_files(manifest_of(target, files, "ngram"), files), files)
    export_pair(files, tmp_path / "out")
    carried, answer = import_pair(tmp_path / "out", tmp_path / "back", target=target)
    assert answer.ok
    assert read_manifest(carried.folder).draft.kind == "ngram"
    with pytest.raises(FolderError, match="has no weights"):
        export_pair(files, tmp_path / "other", layout="speculators")
    assert not (tmp_path / "other").exists()


def test_a_pair_in_the_speculators_layout_is_the_same_pair_when_it_comes_back(
    tmp_path: Path,
) -> None:
    target = toy_target_folder(tmp_path / "target", layers=8)
    files = pair_files(tmp_path / "pair", "none")
    toy_draft_folder(target, files / "draft")
    manifest = with_files(manifest_of(target, files, "head"), files)
    write_manifest(manifest, files)
    out = export_pair(files, tmp_path / "out", layout="speculators", draft_len=3)
    config = json.loads((out.folder / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(target)
    assert out.left
    carried, answer = import_pair(out.folder, tmp_path / "back", target=target)
    assert answer.ok, answer.reasons
    back = read_manifest(carried.folder)
    assert (back.pair_id, back.report) == (manifest.pair_id, manifest.report)
    verify_files(back, carried.folder)
    weights = out.folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(DigestError, match="its files were changed"):
        import_pair(out.folder, tmp_path / "changed", target=target)
    assert not (tmp_path / "changed").exists()


def test_a_bare_draft_is_taken_for_what_it_is(target: Path, tmp_path: Path) -> None:
    head = tiny.head(tmp_path / "head")
    (head / "model.py").write_text("raise SystemExit")
    carried, answer = import_pair(head, tmp_path / "in", target=target)
    assert answer.ok
    assert tree(carried.folder) == {"config.json", "model.safetensors"}
    other = tiny.head(tmp_path / "other", vocab_size=999)
    assert "vocab_size 999" in import_pair(other, tmp_path / "two", target=target)[1].reasons[0]


def test_a_pair_of_another_release_is_named_as_such(
    exported: Path, target: Path, tmp_path: Path
) -> None:
    path = target / "generation_config.json"
    tiny.write_json(path, {**json.loads(path.read_text()), "temperature": 0.1})
    _, answer = import_pair(exported, tmp_path / "back", target=target)
    assert not answer.ok
    assert "the same weights; generation changed" in answer.reasons[0]


def changed_weights(folder: Path) -> None:
    tiny.head(folder, seed=5)


def changed_picture(folder: Path) -> None:
    (folder / "report" / "hazards.png").write_bytes(b"other")


def missing_curves(folder: Path) -> None:
    (folder / "training" / "curves.json").unlink()


def report_that_leads_outside(folder: Path) -> None:
    shutil.move(folder / "report", folder.parent / "report-outside")
    (folder / "report").symlink_to(folder.parent / "report-outside")


def weights_that_lead_outside(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "outside.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "outside.safetensors")


def a_list_that_leads_outside(folder: Path) -> None:
    path = folder / "pair.json"
    stored = json.loads(path.read_text())
    stored["files"] = {**stored["files"], "../secret": "0" * 64}
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("damage", "fault", "words"),
    [
        (changed_weights, DigestError, "got sha256"),
        (changed_picture, DigestError, "hazards.png: got sha256"),
        (missing_curves, DigestError, "curves.json: is missing"),
        (report_that_leads_outside, FolderError, "leads outside"),
        (weights_that_lead_outside, FolderError, "leads outside"),
        (a_list_that_leads_outside, ManifestError, "wanted a path inside"),
    ],
)
def test_a_changed_or_hostile_export_is_refused_and_leaves_nothing(
    exported: Path,
    target: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    fault: type[Exception],
    words: str,
) -> None:
    damage(exported)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(fault, match=words):
        import_pair(exported, tmp_path / "back", target=target)
    assert sorted(tmp_path.iterdir()) == before


def test_a_changed_file_is_named_where_it_lies(
    exported: Path, target: Path, tmp_path: Path
) -> None:
    changed_weights(exported)
    with pytest.raises(DigestError, match=f"^{exported / 'model.safetensors'}: got sha256"):
        import_pair(exported, tmp_path / "back", target=target)


def test_a_manifest_that_binds_another_draft_is_refused(
    exported: Path, target: Path, tmp_path: Path
) -> None:
    """Its list of files may be right and its draft not: whoever wrote it wrote both."""
    manifest = read_manifest(exported)
    other = replace(manifest, draft=replace(manifest.draft, digest="0" * 64))
    write_manifest(other, exported)
    with pytest.raises(DigestError, match="binds the head draft 000000000000"):
        import_pair(exported, tmp_path / "back", target=target)


def test_nothing_is_written_over(pair: Path, target: Path, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    with pytest.raises(FolderError, match="is not empty"):
        export_pair(pair, tmp_path / "taken")
    with pytest.raises(FolderError, match="is not empty"):
        import_pair(exported, tmp_path / "taken", target=target)
    assert tree(tmp_path / "taken") == {"mine"}


def test_a_damaged_pair_is_not_exported(pair: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layout: got 'gguf'"):
        export_pair(pair, tmp_path / "out", layout="gguf")
    (pair / "draft" / "config.json").write_text("{}")
    with pytest.raises(DigestError, match="config.json: got sha256"):
        export_pair(pair, tmp_path / "out")
    assert not (tmp_path / "out").exists()
