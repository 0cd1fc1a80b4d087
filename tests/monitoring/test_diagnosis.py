"""Facts in, causes out."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.alarms import alarm_id, alarm_of
from monitoring.causes import ACTIONS, CAUSES, inhibited
from monitoring.diagnosis import diagnose, diagnose_source
from monitoring.facts import (
    SOURCE_FAULTS,
    Excursion,
    Facts,
    Finding,
    Gain,
    Load,
    Mix,
    SliceFacts,
    SourceFault,
)
from monitoring.slicing import fallen, to_name
from speculation.records import Interval

OLD, NEW = "a" * 64, "b" * 64
BASELINE = Interval(0.70, 0.68, 0.72, 200)
LOW, DEAD_LOW = Interval(0.58, 0.55, 0.61, 118), Interval(0.02, 0.0, 0.04, 6)
HEALTHY = Facts(
    pair="p-1", drafter="head", at=500.0, release=OLD, expected_release=OLD, baseline=BASELINE
)
DEAD = Excursion(since=400.0, requests=6, level=9.5)
FALLEN = Excursion(since=300.0, requests=130, level=6.1)
OFF = Excursion(since=450.0, requests=5, level=0.0, detector="pace")
MOVED = Mix(True, 310.0, 1e-9, -0.09, Interval(0.0, -0.02, 0.02, 300))
PARTS = {"weights": "1", "chat_template": "2"}
COSTS = Gain("off_by_cost", 0.9, None, "alone", 350.0, 200)
TENOR = SliceFacts("adapter=tenor", 40, Interval(0.40, 0.34, 0.46, 40), BASELINE, 0.1, 0.1, FALLEN)
ALTO = SliceFacts("adapter=alto", 90, Interval(0.69, 0.66, 0.72, 90), BASELINE, 0.9, 0.9)
SHORT = SliceFacts("context up to 512", 60, Interval(0.6, 0.57, 0.63, 60), BASELINE, 0.5, 0.5)
LONG = SliceFacts("context up to 1024", 70, Interval(0.6, 0.57, 0.63, 70), BASELINE, 0.5, 0.5)

# name of the case -> what differs from health, and the causes that are found
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "healthy": ({}, []),
    "another release": ({"release": NEW}, ["release_mismatch"]),
    "a release nobody expects": ({"release": NEW, "expected_release": None}, []),
    "a release nobody tells": ({"release": ""}, []),
    "another release and dead": (
        {"release": NEW, "dead": DEAD, "recent": DEAD_LOW},
        ["release_mismatch", "dead_draft"],
    ),
    "another release and fallen": ({"release": NEW, "fallen": FALLEN}, ["release_mismatch"]),
    "only the template differs": (
        {
            "release": NEW,
            "expected_parts": PARTS,
            "served_parts": {**PARTS, "chat_template": "3"},
            "fallen": FALLEN,
        },
        ["template_change"],
    ),
    "weights and template differ": (
        {
            "release": NEW,
            "expected_parts": PARTS,
            "served_parts": {"weights": "0", "chat_template": "3"},
        },
        ["release_mismatch"],
    ),
    "another system prompt as it fell": (
        {"fallen": FALLEN, "recent": LOW, "template_since": 320.0},
        ["template_change"],
    ),
    "another system prompt days before": (
        {"fallen": FALLEN, "recent": LOW, "template_since": 300.0 - 2 * 86_400},
        ["drift"],
    ),
    "another system prompt and no fall": ({"template_since": 320.0}, []),
    "dead": ({"dead": DEAD, "fallen": FALLEN, "recent": DEAD_LOW}, ["dead_draft"]),
    "fallen": ({"fallen": FALLEN, "recent": LOW}, ["drift"]),
    "fallen, and may be dying": ({"fallen": FALLEN, "dying": True}, []),
    "slow tests alone, confirmed": ({"slow": (FALLEN,), "confirmed": True}, ["drift"]),
    "slow tests alone": ({"slow": (FALLEN,)}, []),
    "off by rejections, all wasted": ({"rejected_off": OFF, "recent": DEAD_LOW}, ["dead_draft"]),
    "off by rejections, some accepted": ({"rejected_off": OFF, "recent": LOW}, ["drift"]),
    "off by rejections for a moment": (
        {"rejected_off": replace(OFF, requests=4), "recent": DEAD_LOW},
        [],
    ),
    "the mix moved": ({"fallen": FALLEN, "recent": LOW, "mix": MOVED}, ["mix_shift"]),
    "the mix moved and inside it fell": (
        {
            "fallen": FALLEN,
            "recent": LOW,
            "mix": replace(MOVED, within=Interval(-0.1, -0.14, -0.06, 300)),
        },
        ["drift"],
    ),
    "the mix moved and one slice fell": (
        {"fallen": FALLEN, "recent": LOW, "mix": MOVED, "slices": (TENOR, ALTO)},
        ["mix_shift", "drift"],
    ),
    "another engine": (
        {"engine": "builtin 2", "baseline_engine": "builtin 1", "fallen": FALLEN, "mix": MOVED},
        ["engine_change"],
    ),
    "another engine and dead": (
        {"engine": "builtin 2", "baseline_engine": "builtin 1", "dead": DEAD},
        ["dead_draft", "engine_change"],
    ),
    "no gain": ({"gain": COSTS}, ["no_gain"]),
    "no gain, by its speed-up": (
        {"gain": Gain(speedup=Interval(0.9, 0.85, 0.95, 50))},
        ["no_gain"],
    ),
    "some gain": ({"gain": Gain(speedup=Interval(0.97, 0.9, 1.04, 50))}, []),
    "no gain because it fell": ({"gain": COSTS, "fallen": FALLEN, "recent": LOW}, ["drift"]),
    "no gain under load": ({"gain": replace(COSTS, load="loaded")}, ["capacity"]),
    "a queue": ({"load": Load(0.9, 4.0, 0.1, 0.95, 330.0), "gain": COSTS}, ["capacity"]),
    "a queue as ever": ({"load": Load(0.9, 4.0, 3.9, 0.95, 330.0)}, []),
    "below the floor": ({"burning": Excursion(200.0, 40, 15.0)}, ["slow_service"]),
    "below the floor since it fell": (
        {"burning": Excursion(200.0, 40, 15.0), "fallen": FALLEN, "recent": LOW},
        ["drift"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_causes_are_told_apart(case: str) -> None:
    differing, causes = CASES[case]
    found = diagnose(replace(HEALTHY, **differing))
    assert [one.cause for one in found] == causes
    for one in found:
        assert one.action == CAUSES[one.cause].action
        assert one.statement.endswith(ACTIONS[one.action])
        assert "1970-01-01T00:0" in one.statement  # since when
        assert (one.pair, one.drafter) == ("p-1", "head")


def test_a_finding_carries_what_it_rests_on() -> None:
    (found,) = diagnose(
        replace(
            HEALTHY,
            fallen=FALLEN,
            recent=LOW,
            confirmed=True,
            forwards_per_request=Interval(39.2, 36.0, 42.0, 100),
        )
    )
    assert (found.requests, found.since) == (118, 300.0)
    assert (found.estimate, found.expected) == (LOW, BASELINE)
    assert found.evidence["acceptance_high"] == 0.61
    assert found.evidence["baseline"] == 0.70
    assert found.evidence["level"] == 6.1
    assert found.evidence["forwards_per_request"] == 39.2
    assert "0.580 [0.550, 0.610] (n=118), expected 0.700" in found.statement
    assert "a slower test confirms it" in found.statement


def test_a_mismatch_names_both_releases_and_needs_no_requests() -> None:
    (found,) = diagnose(replace(HEALTHY, release=NEW, mismatched_since=490.0))
    assert (found.since, found.requests) == (490.0, 0)
    assert OLD[:12] in found.statement
    assert NEW[:12] in found.statement


def test_a_fall_of_one_slice_names_it() -> None:
    slices = (TENOR, ALTO, SHORT, LONG)  # lengths fall a little with the adapter
    (found,) = diagnose(replace(HEALTHY, fallen=FALLEN, recent=LOW, slices=slices))
    assert found.slice == "adapter=tenor"
    assert found.estimate == TENOR.recent
    assert "for adapter=tenor" in found.statement
    assert "slice.adapter=tenor.estimate" in found.evidence
    assert "slice.adapter=alto.estimate" not in found.evidence


def test_a_fall_of_one_slice_is_a_drift_before_the_whole_pair_moved() -> None:
    (found,) = diagnose(replace(HEALTHY, slices=(TENOR, ALTO)))
    assert (found.cause, found.slice, found.since) == ("drift", "adapter=tenor", 300.0)


def test_a_fall_of_every_slice_is_the_pair_s() -> None:
    (found,) = diagnose(replace(HEALTHY, fallen=FALLEN, recent=LOW, slices=(SHORT, LONG)))
    assert found.slice == ""
    assert {key for key in found.evidence if key.endswith(".fall")} == {
        "slice.context up to 512.fall",
        "slice.context up to 1024.fall",
    }


def test_a_slice_that_is_dead_leaves_the_others_to_themselves() -> None:
    dead = replace(TENOR, dead=DEAD, recent=DEAD_LOW)
    bass = replace(TENOR, name="adapter=bass")
    found = diagnose(replace(HEALTHY, fallen=FALLEN, recent=LOW, slices=(dead, ALTO)))
    assert [(one.cause, one.slice) for one in found] == [("dead_draft", "adapter=tenor")]
    found = diagnose(replace(HEALTHY, slices=(dead, bass, ALTO)))
    assert [(one.cause, one.slice) for one in found] == [
        ("dead_draft", "adapter=tenor"),
        ("drift", "adapter=bass"),
    ]


def test_slices_that_fall_by_chance_are_not_named() -> None:
    """Holm over 20 slices: one at p = 0.01 is what chance gives."""
    spread = 0.02
    near = replace(ALTO, recent=Interval(0.65, 0.65 - 1.96 * spread, 0.65 + 1.96 * spread, 50))
    many = [replace(ALTO, name=f"adapter={n}") for n in range(19)]
    assert fallen([near]) == [near]
    assert fallen([near, *many]) == []
    assert to_name([near, *many]) is None


def test_a_slice_of_few_requests_says_nothing() -> None:
    few = replace(TENOR, fallen=None, recent=Interval(0.1, 0.0, 0.2, 5))
    assert fallen([few, ALTO]) == []


@pytest.mark.parametrize("kind", SOURCE_FAULTS)
def test_a_source_that_lies_is_named_by_itself(kind: str) -> None:
    fault = SourceFault("http://10.0.0.1:8000", kind, 300.0, "got HTML, wanted figures")
    found = diagnose_source(fault)
    assert (found.cause, found.slice) == (kind, "source=http://10.0.0.1:8000")
    assert "http://10.0.0.1:8000" in found.statement
    assert "got HTML, wanted figures" in found.statement


NUMBER = st.one_of(st.floats(), st.integers(-(10**30), 10**30), st.sampled_from([0.0, math.inf]))
SOME = st.one_of(st.none(), st.builds(Interval, NUMBER, NUMBER, NUMBER, st.integers(0, 10**9)))
OUT = st.one_of(st.none(), st.builds(Excursion, NUMBER, st.integers(0, 10**9), NUMBER, st.text()))
WORD = st.sampled_from(["", "a", "b", "{x}"])
PARTED = st.dictionaries(st.sampled_from(["weights", "chat_template"]), WORD)
ANY_FACTS = st.builds(
    Facts,
    **{name: WORD for name in ("pair", "drafter", "release", "engine", "baseline_engine")},
    **{name: OUT for name in ("dead", "rejected_off", "fallen", "burning")},
    **{name: SOME for name in ("recent", "baseline", "forwards_per_request")},
    **{name: st.one_of(st.none(), NUMBER) for name in ("mismatched_since", "template_since")},
    at=NUMBER,
    expected_release=st.one_of(st.none(), WORD),
    expected_parts=PARTED,
    served_parts=PARTED,
    mix=st.one_of(st.none(), st.builds(Mix, st.booleans(), NUMBER, NUMBER, NUMBER, SOME)),
    slices=st.lists(
        st.builds(SliceFacts, st.sampled_from(["a=1", "a=2", "b 3", "{"]), st.just(1), SOME, SOME),
        max_size=4,
    ).map(tuple),
    load=st.one_of(st.none(), st.builds(Load, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)),
    gain=st.one_of(st.none(), st.builds(Gain, WORD, NUMBER, SOME, st.sampled_from(["alone", "x"]))),
)


@settings(max_examples=60, deadline=None)
@given(facts=ANY_FACTS)
def test_no_facts_are_too_odd_and_no_cause_is_told_beside_what_explains_it(facts: Facts) -> None:
    found = diagnose(facts)
    for one in found:
        assert one.cause in CAUSES
        for other in found:
            assert not inhibited(one.cause, part=one.slice, by=other.cause, by_part=other.slice)


def test_causes_explain_no_circle() -> None:
    for cause, row in CAUSES.items():
        assert row.action in ACTIONS
        for other in row.inhibits:
            assert other in CAUSES
            assert cause not in CAUSES[other].inhibits


def test_every_cause_and_what_it_advises_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    for cause in CAUSES:
        assert re.search(rf"^#+ `{cause}`$|^\| `{cause}` \|", page, re.MULTILINE), cause


def test_an_alarms_id_is_fixed_by_what_it_is_about() -> None:
    first = alarm_id("p-1", "head", "drift", 300.0)
    assert first == alarm_id("p-1", "head", "drift", 300.0, "")
    others = {
        alarm_id("p-2", "head", "drift", 300.0),
        alarm_id("p-1", "ngram", "drift", 300.0),
        alarm_id("p-1", "head", "dead_draft", 300.0),
        alarm_id("p-1", "head", "drift", 301.0),
        alarm_id("p-1", "head", "drift", 300.0, "adapter=tenor"),
    }
    assert len(others | {first}) == 6


def test_an_alarm_holds_all_that_was_found() -> None:
    (found,) = diagnose(replace(HEALTHY, slices=(TENOR, ALTO)))
    alarm = asdict(alarm_of(found, at=510.0, code_version="1.2"))
    for name in set(Finding.__slots__) - {"evidence"}:
        value = getattr(found, name)
        assert alarm[name] == (asdict(value) if isinstance(value, Interval) else value)
    assert (alarm["raised"], alarm["code_version"]) == (510.0, "1.2")
