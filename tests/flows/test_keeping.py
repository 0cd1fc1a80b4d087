"""How far a draft may be used goes from the verdict to the pair's manifest and on to the server."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from configuration.settings import Settings
from evaluation.capping import longest, up_to
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.simulation import report
from evaluation.slicing import prompt_tokens
from evaluation.summary import rows
from flows import keeping
from registry.fingerprint import fingerprint
from registry.manifest import write_manifest
from registry.promotion import Outcome, promote
from registry.schema import prepare_database
from registry.store import Store
from serving.arms import RefusedPairError
from serving.pairs_on_disk import PairsOnDisk
from speculation.records import Phase, Verdict
from tests.evaluation.reshaped import with_lengths, without
from tests.evaluation.test_gate import ARMS
from tests.evaluation.test_rules_slices import dead_on
from tests.registry import tiny

SHORT, LONG = 100, 300  # tokens of prompts, in two buckets; the target's context is 512


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "mlflow").mkdir()
    prepare_database(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    return Settings(home=tmp_path)


def measured(*, dead_at_long: bool, long: int = 60) -> Report:
    """The candidate beside plain decoding and n-gram; a block's prompts have one length."""
    found = without(report(ARMS, seed=1, prompts=120), "incumbent")
    found = with_lengths(found, lambda n: SHORT if n // 4 % 2 or n // 8 * 4 >= long else LONG)
    dead = {r.prompt for r in found.requests if r.prompt_tokens == LONG}
    return dead_on(found, dead) if dead_at_long else found


def served_context(settings: Settings, found: Report, verdict: Verdict) -> int | None:
    """Up to where a server drafts with the pair that is registered with this verdict."""
    target = tiny.target(settings.home / "target")
    draft = tiny.head(settings.home / "made" / "draft")
    folder = settings.home / "measured"
    folder.mkdir()
    release = fingerprint(target).digest
    found = replace(found, conditions=replace(found.conditions, release=release))
    found.write(folder / "report.json")
    files = keeping.assemble(str(draft), {"folder": str(folder)}, settings.home / "files")
    plan: dict[str, Any] = {
        **{"target": str(target), "release": release, "parent": None, "champion": None},
        **{"version": 1, "why": "it came"},
    }
    told = {"folder": str(folder), "rows": rows(found)}
    judged = {"verdict": asdict(verdict)}
    kept = keeping.register(settings, "line", plan, str(draft), told, judged, files)
    store = Store(settings.registry_url)
    pair = store.pair("line", kept["version"])
    assert pair is not None
    place = settings.home / "host" / kept["pair_id"]
    place.mkdir(parents=True)
    shutil.copytree(files / "draft", place / "draft")
    write_manifest(store.manifest(pair), place)
    return PairsOnDisk(place.parent).check(kept["pair_id"], "1", None).arm.context


def test_a_server_drafts_no_further_than_the_verdict_found_the_draft_good(
    settings: Settings,
) -> None:
    found = measured(dead_at_long=True)
    verdict = judge(Policy(prompts=120), found)
    assert verdict.phase is Phase.PASS
    assert verdict.context_measured is not None
    assert verdict.context_measured < LONG
    assert served_context(settings, found, verdict) == verdict.context_measured


@pytest.mark.parametrize(("long", "far"), [(60, True), (28, False)])
def test_a_verdict_of_no_length_leaves_it_at_what_enough_prompts_were_as_long_as(
    settings: Settings, long: int, *, far: bool
) -> None:
    """As a person finds it who promotes what the gate did not pass."""
    found = measured(dead_at_long=False, long=long)
    assert sum(p == LONG for p in prompt_tokens(found).values()) == long
    context = served_context(settings, found, Verdict(Phase.FAIL, ()))
    assert context == longest(found if far else up_to(found, SHORT))
    assert (context is not None and context > LONG) is far


def test_a_pair_whose_measuring_was_cut_short_is_kept_as_inconclusive_with_the_reason(
    settings: Settings,
) -> None:
    found = replace(measured(dead_at_long=False), incomplete="the server ended by signal 9")
    half = found.requests[: len(found.requests) // 2]
    found = replace(found, requests=half, blocks=())
    with pytest.raises(RefusedPairError, match="judged at no length at all"):
        served_context(settings, found, judge(Policy(prompts=120), found))
    store = Store(settings.registry_url)
    (pair,) = store.pairs("line")
    assert (pair.verdict, pair.ended_early) == ("INCONCLUSIVE", "the server ended by signal 9")
    assert promote(store, "line", pair.version, expect=None).outcome is Outcome.REFUSED
    assert store.champion("line") is None


@pytest.mark.parametrize("changed", ["the folder", "the report"])
def test_a_pair_is_bound_to_the_release_that_was_measured_or_to_none(
    settings: Settings, changed: str
) -> None:
    """Hours lie between the look at a release and the registration of its pair."""
    target = tiny.target(settings.home / "target")
    release = fingerprint(target).digest
    found = measured(dead_at_long=False)
    of = "f" * 64 if changed == "the report" else release
    found = replace(found, conditions=replace(found.conditions, release=of))
    (folder := settings.home / "measured").mkdir()
    found.write(folder / "report.json")
    files = keeping.assemble("ngram", {"folder": str(folder)}, settings.home / "files")
    plan = {"target": str(target), "release": release, "parent": None, "version": 1, "why": "it"}
    if changed == "the folder":
        shutil.rmtree(target)
        tiny.target(target, seed=1)
    judged = {"verdict": asdict(Verdict(Phase.PASS, ()))}
    with pytest.raises(ValueError, match=r"holds release .* must not be changed in place"):
        keeping.register(settings, "line", plan, "ngram", {"rows": rows(found)}, judged, files)
    assert Store(settings.registry_url).pairs("line") == []
