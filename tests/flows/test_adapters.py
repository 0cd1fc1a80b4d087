"""A pair is bound to its pairing's adapters: what they were when it was measured, and where they
live, which is where a server loads them from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from flows import making, standing_in
from flows.adapters import as_input, bound, check_fit, digests_of, set_of
from registry.adapters import adapter_set, fingerprint_adapter
from registry.errors import FolderError
from registry.fingerprint import fingerprint
from registry.manifest import write_manifest
from registry.schema import prepare_database
from registry.store import Store
from serving.pairs_on_disk import PairsOnDisk
from speculation.records import Prompt
from tests.registry import tiny

MODULE = "base_model.model.model.layers.1.mlp.up_proj"
LINE = Pairing(adapters={"law": Path("lora/law")})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    tiny.target(tmp_path / "target")
    tiny.lora(tmp_path / "lora" / "law", MODULE, rows=tiny.HIDDEN)
    return Settings(home=tmp_path, pairings={"line": LINE})


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    prepare_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def store(settings: Settings, migrated: Path) -> Store:
    (settings.home / "mlflow").mkdir()
    shutil.copy(migrated, settings.home / "mlflow" / "mlflow.db")
    made = Store(settings.registry_url)
    target = settings.home / "target"
    made.register_release("line", target, fingerprint(target))
    return made


def other(settings: Settings) -> None:
    tiny.lora(settings.home / "lora" / "law", MODULE, rows=tiny.HIDDEN, rank=3)


def test_an_adapter_is_named_by_what_it_is_now(settings: Settings) -> None:
    before = digests_of(settings, LINE)
    assert before == {"law": fingerprint_adapter(settings.home / "lora" / "law")}
    assert set_of(settings, LINE) == adapter_set(before)
    assert (set_of(settings, Pairing()), as_input({}), as_input(None)) == ("", {}, {})
    other(settings)
    assert set_of(settings, LINE) != adapter_set(before), "what is remembered is of the old files"
    gone = replace(LINE, adapters={"law": Path("lora/gone")})
    with pytest.raises(FolderError, match="adapter law: .*gone: has no adapter_config.json"):
        digests_of(settings, gone)


def test_an_adapter_that_has_no_place_in_the_release_is_refused_before_anything_is_made(
    settings: Settings, store: Store
) -> None:
    digest = store.releases("line")[0].digest
    assert making.begin(settings, "line", digest)["adapters"] == digests_of(settings, LINE)
    tiny.lora(settings.home / "lora" / "law", MODULE.replace("1", "99"), rows=tiny.HIDDEN)
    with pytest.raises(ValueError, match=r"do not fit .*adapter law: it adapts model.layers.99"):
        making.begin(settings, "line", digest)
    check_fit(settings, Pairing(), settings.home / "target")


def test_what_changed_since_it_was_planned_is_bound_to_no_pair(settings: Settings) -> None:
    plan = {"adapters": digests_of(settings, LINE)}
    place = str(settings.home / "lora" / "law")
    assert bound(settings, "line", plan) == (plan["adapters"], {"law": place})
    assert bound(settings, "another", {}) == ({}, {}), "a pairing that is configured no more"
    other(settings)
    with pytest.raises(ValueError, match="the adapter law was .*, and is .*put it back"):
        bound(settings, "line", plan)
    with pytest.raises(ValueError, match="the adapter law was none when this was begun"):
        bound(settings, "line", {})


def test_what_stands_in_is_served_with_the_pairings_adapters(
    settings: Settings, store: Store
) -> None:
    digest = store.releases("line")[0].digest
    standing_in.stand_in(settings, "line", digest, "ngram", "it waited")
    champion = store.champion("line")
    assert champion is not None
    manifest = store.manifest(champion)
    assert manifest.adapters == digests_of(settings, LINE)
    assert champion.adapters == set_of(settings, LINE)
    found = PairsOnDisk(settings.home / "host")
    (found.folder / champion.pair_id).mkdir(parents=True)
    write_manifest(manifest, found.folder / champion.pair_id)
    target = found.check(champion.pair_id, "1", None).target
    assert target.adapter_folders == {"law": settings.home / "lora" / "law"}
    assert target.adapters == manifest.adapters


def test_a_look_asks_for_each_adapter_in_turn() -> None:
    asked = [
        Prompt(str(n), ({"role": "user", "content": f"{n}"},), adapter=name)
        for n, name in enumerate([None, None, None, "law", "law", "tax"])
    ]
    found = making._of_each_adapter(asked)
    assert [prompt.id for prompt in found] == ["0", "3", "5", "1", "4", "2"]


def test_training_prompts_are_answered_with_the_adapters_that_they_ask_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def child(step: str, spec: dict[str, Any], progress: Any) -> Path:
        given.update(spec)
        return Path("/r")

    asked = [Prompt("1", ({"role": "user", "content": "fox"},), adapter="law")]
    write_prompts(settings.path(LINE.train_prompts), asked)
    monkeypatch.setattr(making, "in_child", child)
    monkeypatch.setattr(making, "device", lambda: "cpu")
    monkeypatch.setattr(making, "_judging", lambda *_: ([], 0))
    plan = {"target": "/t", "release": "a" * 64, "adapters": {"law": "b" * 64}}
    making.regenerate_answers(settings, LINE, plan, settings.home / "out", print)
    assert given["adapters"] == {"law": str(settings.home / "lora" / "law")}
    assert given["prompts"][0]["adapter"] == "law"
    assert making.answers(LINE, settings, plan) != making.answers(
        LINE, settings, {**plan, "adapters": {"law": "c" * 64}}
    ), "answers of another adapter are others"


def test_an_adapter_is_not_named_as_its_pairing_is() -> None:
    with pytest.raises(ValueError, match="an adapter named 'law' as its pairing is"):
        Settings(home=Path("/h"), pairings={"law": LINE})
