"""A draft good at short context and dead at long is capped where nothing serves, else rejected."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from evaluation.capping import behind, buckets, good_to, longest, up_to
from evaluation.gate import judge
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.simulation import Arm, report
from evaluation.telling import sentence
from speculation.records import Phase, Verdict
from tests.evaluation.reshaped import at_once_too, with_lengths, without
from tests.evaluation.test_gate import ARMS, finding
from tests.evaluation.test_rules_slices import dead_on

POLICY = Policy(prompts=120)
LENGTHS = (100, 100, 400, 400, 900, 1_900)  # of six prompts: two, two, one and one a bucket


def dead_beyond(tokens: int, *, incumbent: bool, in_a_row: int = 4) -> Report:
    """So many prompts in a row have one length: of 4 cutting by length leaves blocks whole."""
    measured = report(ARMS, seed=1, prompts=240)
    if not incumbent:
        measured = without(measured, "incumbent")
    measured = with_lengths(measured, lambda n: LENGTHS[n // in_a_row % 6])
    long = {r.prompt for r in measured.of("none") if r.prompt_tokens > tokens}
    return dead_on(measured, long)


def test_where_nothing_serves_it_passes_up_to_the_longest_context_it_is_good_at() -> None:
    measured = dead_beyond(512, incumbent=False)
    verdict = judge(POLICY, measured)
    assert verdict.phase is Phase.PASS
    good = [r for r in measured.requests if r.prompt_tokens <= 512]
    assert verdict.context_measured == max(r.prompt_tokens + r.completion_tokens for r in good)
    note = finding(verdict, "context_cap")
    assert "slice context up to" not in note.statement
    assert "context up to 1024" in note.statement
    assert "context up to 2048" in note.statement
    assert f"capped at contexts of {verdict.context_measured} tokens" in sentence(verdict)
    assert Verdict.from_json(json.loads(json.dumps(asdict(verdict)))) == verdict


def test_a_draft_is_capped_though_blocks_hold_short_and_long_prompts() -> None:
    """As `evaluate` deals them. One at a time each request has its own share of a block's time."""
    measured = dead_beyond(512, incumbent=False, in_a_row=1)
    verdict = judge(POLICY, measured)
    assert (verdict.phase, finding(verdict, "context_cap").phase) == (Phase.PASS, Phase.PASS)
    cut = up_to(measured, 512)
    seconds = {r.prompt: r.seconds for r in measured.of("none", "speed")}
    (whole, part) = (
        {b.block: b.seconds for b in of.blocks if b.arm == "none"} for of in (measured, cut)
    )
    assert part
    split = 0
    for block, took in part.items():
        kept, of_all = (
            sum(seconds[r.prompt] for r in of.of("none", "speed") if r.block == block)
            for of in (cut, measured)
        )
        assert took == pytest.approx(whole[block] * kept / of_all)
        split += kept < of_all
    assert split


def test_beside_an_incumbent_it_is_rejected_and_the_verdict_says_how_far_it_is_good() -> None:
    verdict = judge(POLICY, dead_beyond(512, incumbent=True))
    assert verdict.phase is Phase.FAIL
    assert finding(verdict, "slice context up to 2048").phase is Phase.FAIL
    assert "up to prompts of 512 tokens" in finding(verdict, "context_cap").statement
    assert verdict.context_measured is not None
    assert verdict.context_measured < 1_024


def test_one_that_is_dead_at_short_context_is_rejected_and_not_capped() -> None:
    measured = dead_beyond(0, incumbent=False)
    verdict = judge(POLICY, measured)
    assert verdict.phase is Phase.FAIL
    assert not [f for f in verdict.findings if f.rule == "context_cap"]
    assert verdict.context_measured is None


def test_one_that_is_good_everywhere_is_good_to_the_longest_bucket_that_was_judged() -> None:
    measured = dead_beyond(10_000, incumbent=False)
    whole = judge(POLICY, measured)
    assert whole.context_measured == max(
        r.prompt_tokens + r.completion_tokens for r in measured.requests
    )
    few = replace(POLICY, slice_minimum=50)  # 40 prompts are in each of the two longest
    short = judge(few, measured)
    assert short.phase is Phase.PASS
    assert short.context_measured is not None
    assert short.context_measured < 512 + 512


def of_lengths(*sizes: tuple[int, int], alive: int = 10_000, acceptance: float = 0.75) -> Report:
    """Prompts of each length, so many each, of which the draft is dead on those above `alive`."""
    of_each = [tokens for tokens, many in sizes for _ in range(many)]
    arms = {"candidate": Arm(acceptance), "ngram": Arm(0.15)}
    measured = with_lengths(report(arms, seed=1, prompts=len(of_each)), lambda n: of_each[n])
    long = {r.prompt for r in measured.of("none") if r.prompt_tokens > alive}
    return dead_on(measured, long)


@pytest.mark.parametrize(
    ("sizes", "alive", "most"),
    [
        # fewer than slice_minimum in all
        ([(200, 25), (4_000, 4)], 200, 256),
        ([(200, 28), (4_000, 1)], 200, 256),
        ([(200, 12), (400, 12)], 10_000, 256),  # good at both, and nobody can tell
        ([(200, 2), (400, 22)], 10_000, 512),
        ([(200, 24)], 10_000, 256),
        # more, and no bucket has them
        ([(200, 28), (400, 29), (800, 26), (4_000, 4)], 800, 1_024),
        ([(200, 29), (400, 26), (800, 7), (2_000, 7), (4_000, 7), (8_000, 7)], 10_000, 512),
        ([(200, 29), (400, 26), *((800 * 2**n, 7) for n in range(5))], 10_000, 1_024),
        ([(200, 29), (400, 26), *((800 * 2**n, 7) for n in range(5))], 400, 512),
        # one that is judged by itself, and a longer one that is not
        ([(200, 40), (400, 25), (800, 7)], 400, 256),
    ],
)
def test_a_pass_reaches_no_further_than_enough_prompts_stand_behind(
    sizes: list[tuple[int, int]], alive: int, most: int
) -> None:
    measured = of_lengths(*sizes, alive=alive)
    verdict = judge(Policy(prompts=len(measured.prompts)), measured)
    assert verdict.phase is Phase.PASS, verdict.sentence
    assert verdict.context_measured == longest(up_to(measured, most))
    beyond = sum(size for tokens, size in sizes if tokens > most)
    told = [f.statement for f in verdict.findings if f.rule == "context_not_judged"]
    assert [
        f"{beyond} of {len(measured.prompts)} prompts are longer than {most}" in t for t in told
    ] == ([True] if beyond else [])


def test_a_cap_reaches_no_further_than_enough_prompts_stand_behind() -> None:
    """Dead on 40 long prompts, and on 4 of between, of which it cannot be told."""
    measured = of_lengths((200, 60), (800, 4), (4_000, 40), alive=200, acceptance=0.85)
    verdict = judge(Policy(prompts=104), measured)
    assert (verdict.phase, finding(verdict, "context_cap").phase) == (Phase.PASS, Phase.PASS)
    assert verdict.context_measured == longest(up_to(measured, 256))


def test_where_nothing_was_answered_no_length_stands() -> None:
    empty = replace(of_lengths((200, 20)), requests=())
    assert behind(empty, alone=30, least=20) == 0
    assert longest(up_to(empty, 0)) is None


def test_of_several_at_once_a_report_cut_by_length_keeps_whole_blocks_only() -> None:
    drawn = with_lengths(report(ARMS, seed=1, prompts=120), lambda n: 100 if n % 3 else 900)
    measured = at_once_too(drawn, 2, {})
    cut = up_to(measured, 256)
    assert buckets(measured) == {256: 80, 1024: 40}
    assert len(cut.prompts) == 80
    left = {(b.arm, b.block) for b in cut.blocks if b.concurrency == 2}
    asked = {arm: 0 for arm in measured.arms}
    for request in cut.requests:
        if request.run == "speed" and request.concurrency == 2:
            assert (request.arm, request.block) in left
            asked[request.arm] += 1
    assert set(asked.values()) == {2 * len(left) // len(measured.arms)}
    assert all(r.prompt_tokens == 100 for r in cut.requests)
    assert len([b for b in cut.blocks if b.concurrency == 1]) > len(left)


def test_lengths_are_tried_from_the_shortest_and_no_further_than_the_first_that_does_not_pass() -> (
    None
):
    measured = dead_beyond(10_000, incumbent=False)
    tried: list[int] = []

    def judged(part: Report) -> Verdict:
        tried.append(max(r.prompt_tokens for r in part.requests))
        return Verdict(Phase.PASS if len(tried) == 1 else Phase.INCONCLUSIVE, ())

    found = good_to(measured, judged, minimum=20)
    assert tried == [100, 400]
    assert found is not None
    assert found[0] == 256
