"""A LoRA adapter announced, or seen by a source, is one release: its base with it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from configuration.settings import Pairing, Settings
from configuration.sources import Source
from configuration.writing import write_default
from flows import take_in as module
from flows.sources import arriving
from registry.fingerprint import fingerprint
from registry.schema import prepare_database
from registry.store import Store
from tests.cli.test_commands import run
from tests.toys import toy_target_folder
from tests.training.test_adapter import toy_adapter


@pytest.mark.slow  # merges with torch, twice, once in a child
def test_an_adapter_is_the_same_release_by_hand_and_by_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy_target_folder(tmp_path / "base")
    lora = toy_adapter(base, tmp_path / "adapters" / "law")
    wanted = fingerprint(base, adapter=lora).digest
    home = tmp_path / "home"
    source = Source("folder", str(tmp_path / "adapters"), settle_seconds=0.0)
    line = Pairing(target=str(base), sources=(source,))
    write_default(home / "paceline.toml", {"docs": line})
    settings = Settings(home=home, pairings={"docs": line})
    (home / "mlflow").mkdir()
    prepare_database(settings.registry_url)
    store = Store(settings.registry_url)

    monkeypatch.setenv("PACELINE_HOME", str(home))
    for name in ("fetch", "identify", "settle", "register"):
        monkeypatch.setattr(module, name, getattr(module, name).fn)
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("take_in"))
    monkeypatch.setattr(module, "create_markdown_artifact", lambda *given, **named: None)
    monkeypatch.setattr(module, "reporting", lambda *given: lambda *told: None)
    look = arriving(settings, "docs", line, store, stands=lambda key, *, inputs: ("due", ""))
    made = module.take_in.fn(**look[0][0]["parameters"])
    assert (made["version"], made["release"]) == (1, wanted)
    folder = Path(made["folder"])
    assert fingerprint(folder).digest == wanted
    assert folder.parent == home / "releases" / "docs"
    assert not list(folder.parent.glob(".*"))

    shutil.copytree(lora, tmp_path / "copy")
    given = ("--registry", settings.registry_url, "--home", home)
    code, told, errors = run(
        "release", base, "--adapter", tmp_path / "copy", "--pairing", "docs", *given
    )
    assert (code, told and told["version"], told and told["release"]) == (0, 1, wanted), errors
    assert len(store.releases("docs")) == 1

    other = toy_adapter(toy_target_folder(tmp_path / "other", hidden=64), tmp_path / "misfit")
    code, _, errors = run("release", base, "--adapter", other, "--pairing", "docs", *given)
    assert code == 2
    assert "does not fit" in errors
