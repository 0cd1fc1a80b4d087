"""The bench decodes the same with every decoder; how fast is what it is run for."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculation.bench import PLAIN, bench
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
    # It assists one prompt at a time, and no head of ours can.
    theirs = [(TRANSFORMERS, 0), (ASSISTED + "ngram", 2), (ASSISTED + "itself", 2)]
    theirs = theirs if concurrency == 1 else theirs[:1]
    assert [(timing.name, timing.draft_len) for timing in found] == [*ours, *theirs]
    assert found[0].speedups == (1.0, 1.0)
    for timing in found:
        assert timing.concurrency == concurrency
        assert 0 < timing.first_token_seconds <= timing.latency_seconds
        assert len(timing.speedups) == 2
    # Greedy answers are as long whoever decodes, so that rates differ by time alone.
    emitted = {timing.counts.emitted for timing in found[: len(ours)]}
    emitted |= {way().emitted for way in others.values()}
    assert len(emitted) == 1
    assert all(len(way().latencies) == len(PROMPTS) for way in others.values())
