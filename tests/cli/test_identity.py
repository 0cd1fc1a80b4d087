"""`fingerprint`, `check`, `export` and `import` over real folders and a real registry."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from registry.cache import DigestCache
from registry.exporting import export_pair
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import read_manifest, with_files, write_manifest
from registry.schema import prepare_database
from registry.store import Store
from tests.registry import tiny
from tests.registry.conftest import manifest_of, pair_files, registered


def run(*arguments: str | Path) -> tuple[int, Any, str]:
    """Exit code, what was printed as JSON, and stderr."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, printed[-1] if printed else None, result.stderr


def said(*arguments: str | Path) -> str:
    return CliRunner().invoke(app, [*map(str, arguments)]).stdout


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "target")


@pytest.fixture
def pair(target: Path, tmp_path: Path) -> Path:
    files = pair_files(tmp_path / "pair", "head")
    write_manifest(with_files(manifest_of(target, files, "head"), files), files)
    return files


def test_every_parts_digest_is_shown(target: Path) -> None:
    release = fingerprint(target)
    shown = said("fingerprint", target)
    parts = (release.digest, release.weights, release.tokenizer, release.chat_template)
    for digest in (*parts, release.generation, release.configuration):
        assert digest in shown


def test_what_differs_between_two_folders_is_named(target: Path, tmp_path: Path) -> None:
    other = shutil.copytree(target, tmp_path / "other")
    code, told, _ = run("fingerprint", target, "--against", other)
    assert (code, told["difference"]) == (0, "nothing differs")
    path = other / "tokenizer_config.json"
    path.write_text(path.read_text().replace("endfor", "endfor "))
    code, told, _ = run("fingerprint", target, "--against", other)
    assert (code, told["difference"]) == (1, "the same weights; chat template changed")
    assert told["release"]["weights"] == told["against"]["weights"]


def test_a_head_is_named_by_its_digest(tmp_path: Path) -> None:
    head = tiny.head(tmp_path / "head")
    assert run("fingerprint", head)[1]["digest"] == fingerprint_draft(head).digest
    code, told, _ = run("fingerprint", head, "--against", head)
    assert code == 2
    assert "is a draft head" in told["error"]


def test_remembered_digests_are_used_only_when_asked_for(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = run("fingerprint", target)[1]
    assert not (tmp_path / "cache").exists()
    used: list[Path] = []

    def stored(cache: DigestCache) -> dict[str, Any]:
        used.append(cache.path)
        return {}

    monkeypatch.setattr(DigestCache, "_stored", stored)
    assert run("fingerprint", target, "--cached")[1] == first
    assert set(used) == {tmp_path / "cache" / "paceline" / "digests.json"}


def test_what_is_remembered_is_not_believed_when_a_release_is_registered(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for path in target.iterdir():
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 3_600 * 10**9))
    right = run("fingerprint", target, "--cached")[1]["digest"]
    cache = tmp_path / "cache" / "paceline" / "digests.json"
    cache.write_text(re.sub(r'"[0-9a-f]{64}"', '"' + "0" * 64 + '"', cache.read_text()))
    assert run("fingerprint", target, "--cached")[1]["digest"] != right
    prepare_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
    line = ("--pairing", "docstrings", "--registry", f"sqlite:///{tmp_path / 'mlflow.db'}")
    code, told, _ = run("release", target, *line, "--home", tmp_path / "home")
    assert (code, told["release"]) == (0, right)


def test_a_pair_is_checked_against_its_release_draft_and_files(target: Path, pair: Path) -> None:
    code, told, _ = run("check", target, pair)
    assert (code, told["ok"], told["reasons"]) == (0, True, [])
    assert any("judged up to 256 tokens" in note for note in told["notes"])
    path = target / "generation_config.json"
    before = path.read_text()
    path.write_text(before.replace("0.7", "0.8"))
    code, told, _ = run("check", target, pair)
    assert code == 1
    assert "the same weights; generation changed" in told["reasons"][0]
    path.write_text(before)
    tiny.head(pair / "draft", seed=7)
    code, told, _ = run("check", target, pair)
    assert code == 1
    assert any("binds the head draft" in reason for reason in told["reasons"])
    assert any("model.safetensors: got sha256" in reason for reason in told["reasons"])


def changed(path: Path) -> None:
    path.write_text("{}")


def linked_outside(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("layout", ["stored", "exported"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(changed, "got sha256"), (linked_outside, "outside"), (Path.unlink, "is missing")],
)
def test_every_file_of_a_pair_is_compared_in_either_layout(
    target: Path,
    pair: Path,
    tmp_path: Path,
    layout: str,
    damage: Callable[[Path], None],
    reason: str,
) -> None:
    folder = export_pair(pair, tmp_path / "exported").folder if layout == "exported" else pair
    assert run("check", target, folder)[0] == 0
    damage(folder / "report" / "report.json")
    code, told, _ = run("check", target, folder)
    assert code == 1
    (said,) = told["reasons"]
    assert "report.json" in said
    assert reason in said


def test_of_a_servers_copy_the_draft_alone_is_compared(target: Path, pair: Path) -> None:
    shutil.rmtree(pair / "report")
    shutil.rmtree(pair / "training")
    assert run("check", target, pair)[0] == 0
    (pair / "draft" / "config.json").write_text("{}")
    assert run("check", target, pair)[0] != 0


def test_a_refused_export_names_the_pair_and_no_temporary_folder(
    target: Path, tmp_path: Path
) -> None:
    prepare_database(url := f"sqlite:///{tmp_path}/mlflow.db")
    registered(Store(url), target, tmp_path / "pair", "ngram")
    line = ("--pairing", "docstrings", "--version", "1", "--registry", url)
    layout = ("--home", tmp_path / "home", "--layout", "speculators")
    code, _, told = run("export", tmp_path / "out", *line, *layout)
    assert code == 2
    assert "docstrings v1: the draft ngram has no weights" in told
    assert tempfile.gettempdir() not in told.replace(str(tmp_path), "")


def test_an_adapter_that_has_no_place_in_the_target_is_named(
    target: Path, pair: Path, tmp_path: Path
) -> None:
    module = "base_model.model.model.layers.1.mlp.up_proj"
    fitting = tiny.lora(tmp_path / "law", module, rows=tiny.HIDDEN)
    code, told, _ = run("check", target, "ngram", "--adapter", f"law={fitting}")
    assert (code, told["reasons"]) == (0, [])
    code, told, _ = run("check", target, pair, "--adapter", f"law={fitting}")
    assert code == 1
    assert "was not judged with the adapter law" in told["reasons"][0]
    wide = tiny.lora(tmp_path / "wide", module, rows=tiny.HIDDEN + 1)
    lost = tiny.lora(tmp_path / "lost", module.replace("1", "99"), rows=tiny.HIDDEN)
    code, told, _ = run(
        "check", target, "ngram", "--adapter", f"wide={wide}", "--adapter", f"lost={lost}"
    )
    assert code == 1
    assert told["reasons"][0].startswith("adapter wide: base_model.model.model.layers.1.mlp")
    assert (
        "adapter lost: it adapts model.layers.99.mlp.up_proj, which the target has not"
        in (told["reasons"])
    )


def test_a_registered_pair_leaves_and_comes_back(target: Path, tmp_path: Path) -> None:
    prepare_database(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    registry = f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}"
    version = registered(Store(registry), target, tmp_path / "files")
    line = ("--pairing", "docstrings", "--registry", registry, "--home", tmp_path / "home")
    out = tmp_path / "out"
    code, told, _ = run("export", out, *line, "--version", "candidate")
    assert (code, told["pair"], told["left"]) == (0, version.pair_id, [])
    assert read_manifest(out).pair_id == version.pair_id
    assert (out / "report" / "report.json").is_file()
    assert run("export", out, *line, "--version", "1")[0] == 2  # it is not written over
    assert run("export", tmp_path / "no", *line, "--version", "7")[0] == 2
    assert run("export", tmp_path / "no", *line, "--version", "champion")[0] == 2
    assert run("export", tmp_path / "no", *line, "--layout", "gguf")[0] == 2
    code, told, _ = run("import", out, tmp_path / "in", target)
    assert (code, told["pair"], told["ok"]) == (0, True, True)
    other = tiny.target(tmp_path / "other", seed=4)
    code, told, _ = run("import", out, tmp_path / "elsewhere", other)
    assert (code, told["ok"]) == (1, False)
    assert "weights changed" in told["reasons"][0]
    assert "NOT compatible" in said("import", out, tmp_path / "again", other)
    back = said("import", out, tmp_path / "home-again", target, *line)
    assert "it is docstrings v1 already, with the verdict PASS\n" in back, "nothing was registered"

    there = ("--pairing", "elsewhere", *line[2:])
    code, told, _ = run("import", out, tmp_path / "kept", target, *there)
    assert (code, told["version"]) == (0, 1)
    (kept,) = Store(registry).pairs("elsewhere")
    assert (kept.pair_id, kept.verdict) == (version.pair_id, "UNJUDGED")
    assert run("promote", "1", *there)[0] == 1, "a verdict does not travel"
    code, told, _ = run("import", out, tmp_path / "unfit", other, *there)
    assert (code, told["version"]) == (1, None)
    assert run("import", tmp_path / "kept" / "draft", tmp_path / "x", target, *there)[0] == 2
    (out / "model.safetensors").write_bytes(b"cut")
    code, told, _ = run("import", out, tmp_path / "cut", target)
    assert code == 2, "whose folder it is has to change something"
    assert f"{out / 'model.safetensors'}: got sha256" in told["error"]


def test_a_draft_without_a_manifest_is_said_to_be_judged_on_nothing(
    target: Path, tmp_path: Path
) -> None:
    head = tiny.head(tmp_path / "head")
    assert run("import", head, tmp_path / "in", target)[:2] == (
        0,
        {
            **{"folder": str(tmp_path / "in"), "pair": False, "left": []},
            **{"version": None, "ok": True},
            **{"reasons": [], "notes": run("check", target, tmp_path / "in")[1]["notes"]},
        },
    )
    assert "a draft that was judged on nothing" in said("import", head, tmp_path / "b", target)
