"""What no measurement can have written is judged INCONCLUSIVE with its reason, or refused with the
file and the field named, whoever recomputed its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.exits import Exit
from cli.main import app
from evaluation.comparable import ComparisonError
from evaluation.gate import judge
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.report import PairFacts, Report, RequestFigures
from evaluation.samples import digest_of
from evaluation.simulation import report, upto
from evaluation.soundness import misdescribed, unsound
from evaluation.spending import Looks
from speculation.records import Phase
from tests.evaluation.reshaped import at_once_too, drawn_too, with_prompts
from tests.evaluation.test_comparable import ALONE, elsewhere
from tests.evaluation.test_gate import ARMS

POLICY = Policy(prompts=64)
WHOLE = report(ARMS, seed=1)
BUSY = at_once_too(WHOLE, 8, {})
DRAWN = drawn_too(WHOLE, 0.7, 0.5, 0.5)
Edit = Callable[[Report], Report]
HUGE = 10**400


def first(change: Callable[[RequestFigures], RequestFigures], run: str = "acceptance") -> Edit:
    """Of the candidate's requests of that run the first alone."""

    def edited(whole: Report) -> Report:
        place = next(
            n for n, r in enumerate(whole.requests) if (r.arm, r.run) == ("candidate", run)
        )
        requests = list(whole.requests)
        requests[place] = change(requests[place])
        return replace(whole, requests=tuple(requests))

    return edited


def conditions(**fields: Any) -> Edit:
    return lambda whole: replace(whole, conditions=replace(whole.conditions, **fields))


def parted(*fields: Any) -> Edit:
    return first(lambda r: replace(r, parity=Parity(*fields)))


def slower(times: float, arm: str = "none") -> Edit:
    return lambda whole: replace(
        whole,
        blocks=tuple(
            replace(b, seconds=b.seconds * times) if b.arm == arm else b for b in whole.blocks
        ),
    )


def again_for_two(whole: Report) -> Report:
    kept = ("p0", "p1")
    requests = tuple(r for r in whole.requests if r.run != "again" or r.prompt in kept)
    return replace(whole, requests=requests)


def a_slow_block_left_out(whole: Report) -> Report:
    gone = ("candidate", 3)
    requests = tuple(r for r in whole.requests if r.run != "speed" or (r.arm, r.block) != gone)
    blocks = tuple(b for b in whole.blocks if (b.arm, b.block) != gone)
    return replace(whole, requests=requests, blocks=blocks)


def same_id(whole: Report) -> Report:
    facts = (*whole.prompts[:-1], whole.prompts[0])
    digest = digest_of(fact.digest for fact in facts)
    return conditions(prompts_digest=digest)(replace(whole, prompts=facts))


IMPOSSIBLE: dict[str, tuple[Report, Edit, str]] = {
    "prompts": (WHOLE, conditions(prompts=60), "speak of 60 prompts and it lists 64"),
    "prompts_digest": (WHOLE, conditions(prompts_digest="e" * 64), "digest of its prompts"),
    "candidate is ngram": (
        WHOLE,
        conditions(pairs={**WHOLE.conditions.pairs, "candidate": "p-ngram"}),
        "drafted differently for the same text",
    ),
    "candidate is plain": (
        WHOLE,
        conditions(pairs={**WHOLE.conditions.pairs, "candidate": "p-none"}),
        "by which plain decoding was",
    ),
    "unknown arm": (
        WHOLE,
        lambda w: replace(w, requests=(*w.requests, replace(w.requests[0], arm="ghost"))),
        "names no pair",
    ),
    "again for two": (DRAWN, again_for_two, "held against itself on 2 of 64 prompts"),
    "again of a draft": (DRAWN, first(lambda r: replace(r, run="again")), "wanted each once"),
    "again of the incumbent": (
        DRAWN,
        lambda w: replace(
            w, requests=(*w.requests, replace(w.of("incumbent")[0], run="again", temperature=0.7))
        ),
        "answered again, as only plain decoding and the candidate do",
    ),
    "request twice": (
        WHOLE,
        lambda w: replace(w, requests=(*w.requests, w.requests[-1])),
        "twice in one speed run",
    ),
    "block twice": (WHOLE, lambda w: replace(w, blocks=(*w.blocks, w.blocks[0])), "block 0 twice"),
    "block left out": (WHOLE, lambda w: replace(w, blocks=w.blocks[1:]), "has no time"),
    "slow block left out": (WHOLE, a_slow_block_left_out, "did not all answer the same prompts"),
    "block too short": (WHOLE, slower(0.5, "candidate"), "at 1 at once take"),
    "busy block too short": (BUSY, slower(0.9, "candidate"), "take"),
    "block too long": (WHOLE, slower(10), "one after the other"),
    "outcome": (WHOLE, first(lambda r: replace(r, outcome="error")), "the ending 'error'"),
    "errors": (WHOLE, lambda w: replace(w, errors={"candidate": -5}), "-5 requests of candidate"),
    "no prompt tokens": (
        WHOLE,
        lambda w: replace(w, requests=tuple(replace(r, prompt_tokens=0) for r in w.requests)),
        "0 tokens in the prompt",
    ),
    "cached": (WHOLE, first(lambda r: replace(r, prompt_tokens_cached=201)), "201 of 200"),
    "cached below none": (WHOLE, first(lambda r: replace(r, prompt_tokens_cached=-1)), "-1 of 200"),
    "equal and unlike": (WHOLE, parted(True, None, None, 0.0), "and yet parting from it"),
    "equal with a gap": (WHOLE, parted(True, 3, 0.1, 1.0), "and yet parting from it"),
    "negative gap": (WHOLE, parted(False, 3, -0.1, 0.9), "a negative place or gap"),
    "gap at no place": (WHOLE, parted(False, None, 0.1, 0.9), "a gap at no place"),
    "ROUGE-L": (WHOLE, parted(False, 3, 0.1, 1.5), "ROUGE-L"),
    "block_prompts": (WHOLE, conditions(block_prompts=0), "block_prompts = 0"),
    "speed_prompts": (WHOLE, conditions(speed_prompts=-3), "speed_prompts = -3"),
    "looks": (
        upto(WHOLE, 32),
        lambda w: replace(w, looks=Looks(2, (32, 64))),
        r"look 2 of \(32, 64\) prompts, which is at 64, and it lists 32",
    ),
    "looks by the thousand": (
        WHOLE,
        lambda w: replace(w, looks=Looks(1, (64, 2**53))),
        "none that are planned here",
    ),
    "prompt twice": (WHOLE, same_id, "occur more than once|wanted each once"),
    "one question": (
        WHOLE,
        lambda w: with_prompts(w, lambda n, p: replace(p, question="a" * 64) if n < 3 else p),
        "64 prompts ask 62 questions .'p0', 'p1', 'p2' ask the same.: 2 of them are no evidence",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_inconclusive_with_its_reason(name: str) -> None:
    whole, edit, said = IMPOSSIBLE[name]
    assert unsound(whole) is misdescribed(whole) is None
    verdict = judge(replace(POLICY, minimum_prompts=20), edit(whole))
    assert verdict.phase is Phase.INCONCLUSIVE
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(verdict.findings[0].statement)


def test_one_question_to_two_adapters_is_two() -> None:
    asked = with_prompts(
        WHOLE,
        lambda n, p: replace(p, question="a" * 64, adapter=f"a{n}") if n < 2 else p,
    )
    assert unsound(asked) is None


def test_one_look_at_all_there_is_is_no_peeking() -> None:
    assert misdescribed(replace(WHOLE, looks=Looks(1, (64,)))) is None


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda o: with_prompts(o, lambda n, p: replace(p, digest="f" * 64)), "same prompts"),
        (lambda o: with_prompts(o, lambda n, p: replace(p, id=f"q{n}")), "same prompts"),
        (lambda o: replace(o, facts=PairFacts(("another vocabulary",))), "another vocabulary"),
        (lambda o: replace(o, facts=PairFacts(None)), "nobody compared its tokens"),
        (lambda o: replace(o, looks=Looks(1, (64, 128))), "look 1 of at most 2"),
        (first(lambda r: replace(r, outcome="error")), "the ending 'error'"),
        (lambda o: ALONE, "which is the candidate itself"),
    ],
)
def test_an_incumbents_report_that_cannot_be_one_is_refused(edit: Edit, said: str) -> None:
    with pytest.raises(ComparisonError, match=said):
        judge(POLICY, ALONE, edit(elsewhere()))


def within(place: str, value: object) -> Callable[[dict[str, Any]], None]:
    """An edit of a stored report: `place` is the way to a value, with dots."""

    def edit(stored: dict[str, Any]) -> None:
        *way, last = place.split(".")
        inner: Any = stored
        for step in way:
            inner = inner[int(step) if isinstance(inner, list) else step]
        inner[last] = value

    return edit


MISTYPED: list[tuple[str, object, str]] = [
    *(("requests.0.seconds", value, "requests[0].seconds") for value in ("1", None, HUGE, True)),
    *(("blocks.0.seconds", value, "blocks[0].seconds") for value in ("1", HUGE)),
    *(("errors.candidate", value, "errors.candidate") for value in ("many", None)),
    ("requests.0.counts.drafted", HUGE, "requests[0].counts.drafted"),
    ("requests.0.counts.judged_per_position", [HUGE], "counts.judged_per_position[0]"),
    ("requests.0.prompt_tokens", "200", "requests[0].prompt_tokens"),
    ("conditions.pairs", ["p"], "conditions.pairs"),
    *(("conditions.draft_len", value, "conditions.draft_len") for value in ("4", None, 4.0)),
    ("requests.0.parity.gap", "x", "requests[0].parity.gap"),
    ("requests.0.parity", [], "requests[0].parity"),
    ("prompts.0.id", ["p0"], "prompts[0].id"),
    ("looks", {"number": 3, "planned": [64], "strata": []}, "looks: got look 3"),
    ("more", 1, "more: is no field"),
]


@pytest.mark.parametrize(("place", "value", "named"), MISTYPED)
def test_a_value_of_another_type_is_bad_input_with_file_and_field_named(
    tmp_path: Path, place: str, value: object, named: str
) -> None:
    stored = WHOLE.as_json()
    stored = json.loads(json.dumps(stored))
    within(place, value)(stored)
    whole = json.dumps(stored, sort_keys=True, separators=(",", ":")).encode()
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**stored, "digest": hashlib.sha256(whole).hexdigest()}))
    done = CliRunner().invoke(app, ["gate", str(file)])
    assert done.exit_code == Exit.BAD_INPUT
    told = "".join(done.output.replace("│", "").split())
    assert named.replace(" ", "") in told
    assert "report.json" in told


def test_a_whole_number_of_seconds_is_one_and_keeps_its_digest(tmp_path: Path) -> None:
    whole = first(lambda r: replace(r, queue_seconds=0))(WHOLE)
    whole.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json").digest == whole.digest
