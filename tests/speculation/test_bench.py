"""The bench decodes the same with every decoder; how fast is what it is run for."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculation.bench import PLAIN, Run, bench
from speculation.bench_transformers import ASSISTED, TRANSFORMERS, transformers_ways
from speculation.drafters import load_drafter
from speculation.target import load_target
from tests.toys import toy_draft_folder, toy_target_folder

PROMPTS = [tuple(range(9, 9 + length)) for length in (4, 12, 7)]
STOPS = frozenset({5, 17, 40})


@pytest.mark.parametrize("concurrency", [1, 2])
def test_every_way_decodes_the_same_and_has_its_times(tmp_path: Path, concurrency: int) -> None:
    folder = toy_target_folder(tmp_path / "target", layers=2)
    head = toy_draft_folder(folder, tmp_path / "head")
    target = load_target(folder)
    drafts = {"ngram": "ngram", "head": str(head), "itself": str(folder)}
    others = transformers_ways(
        folder,
        target,
        drafts,
        PROMPTS,
        draft_lens=[2],
        max_tokens=10,
        concurrency=concurrency,
        stop_ids=STOPS,
    )
    loaded = {
        name: load_drafter(draft, target, rows=concurrency, max_len=50)
        for name, draft in drafts.items()
    }
    found = bench(
        target,
        loaded,
        PROMPTS,
        draft_lens=[2],
        max_tokens=10,
        concurrency=concurrency,
        turns=2,
        stop_ids=STOPS,
        others=others,
    )
    ours = [(PLAIN, 0), *((name, k) for name in drafts for k in (2, None))]
    theirs = [(TRANSFORMERS, 0), (ASSISTED + "ngram", 2), (ASSISTED + "itself", 2)]  # no head
    assert [(timing.name, timing.draft_len) for timing in found] == [*ours, *theirs]
    plain = found[0]
    assert plain.speedups == plain.latency_ratios == plain.first_token_ratios == (1.0, 1.0)
    for timing in found:
        assert timing.concurrency == concurrency
        assert 0 < timing.first_token_seconds <= timing.latency_seconds
        ratios = (timing.speedups, timing.latency_ratios, timing.first_token_ratios)
        assert [len(each) for each in ratios] == [2, 2, 2]
        assert min(map(min, ratios)) > 0
    # Greedy answers are as long whoever decodes, so that rates differ by time alone.
    emitted = {timing.counts.emitted for timing in found[: len(ours)]}
    emitted |= {way().emitted for way in others.values()}
    assert len(emitted) == 1
    assert all(len(way().latencies) == len(PROMPTS) for way in others.values())


def test_ratios_are_to_plain_decoding_of_the_same_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine halves its speed from one turn to the next: no ratio sees it."""
    folder = toy_target_folder(tmp_path / "target", layers=2)
    slow = iter([1.0, 2.0])

    def other() -> Run:
        by = next(slow)
        return Run(2.0 * by, 10, (2.0 * by, 8.0 * by), (0.5 * by, 0.5 * by))

    plain = iter(
        [Run(1.0, 10, (1.0, 1.0), (1.0, 1.0))] * 2 + [Run(2.0, 10, (2.0, 2.0), (2.0, 2.0))]
    )
    monkeypatch.setattr("speculation.bench._decode", lambda *given: next(plain))
    found = bench(
        load_target(folder),
        {},
        [(1, 2), (3,)],
        draft_lens=[],
        max_tokens=4,
        turns=2,
        others={("other", 0): other},
    )
    timing = found[1]
    assert timing.speedups == pytest.approx((0.5, 0.5))
    assert timing.latency_ratios == pytest.approx((4.0, 4.0))  # of each prompt to itself: 2 and 8
    assert timing.first_token_ratios == pytest.approx((0.5, 0.5))
    assert timing.tokens_per_second == pytest.approx(3.75)


def test_assisted_generation_lets_those_wait_that_were_asked_beside(tmp_path: Path) -> None:
    folder = toy_target_folder(tmp_path / "target", layers=2)
    ways = transformers_ways(
        folder,
        load_target(folder),
        {"ngram": "ngram"},
        [*PROMPTS, PROMPTS[0]],
        draft_lens=[2],
        max_tokens=6,
        concurrency=2,
        stop_ids=frozenset(),
    )
    run = ways[ASSISTED + "ngram", 2]()
    first, second, third, fourth = run.latencies
    assert first < second
    assert third < fourth
    assert second + fourth <= run.seconds
    assert run.first_tokens[1] > first  # it began when the first had ended
