"""How long a context a draft was judged good to, and a report cut down to shorter ones.

A draft may be good at short context and dead at long. The server decodes plainly beyond the context
that a pair's manifest names, so that such a draft can serve up to there. Lengths are the buckets of
slicing.py. Knows reports; it is handed what judges them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from evaluation.report import Report
from evaluation.samples import SPEED
from evaluation.slicing import bucket, prompt_tokens
from speculation.records import Phase, Verdict

BlockKey = tuple[str, float, int, int]  # arm, temperature, concurrency, block


def longest(report: Report) -> int | None:
    """Tokens, prompt and answer together, of the longest request. None where there is none."""
    return max((r.prompt_tokens + r.completion_tokens for r in report.requests), default=None)


def buckets(report: Report) -> dict[int, int]:
    """The buckets of context length that occur, shortest first, with their prompts."""
    sizes: dict[int, int] = {}
    for tokens in sorted(prompt_tokens(report).values()):
        sizes[bucket(tokens)] = sizes.get(bucket(tokens), 0) + 1
    return sizes


def up_to(report: Report, most: int) -> Report:
    """The report of the prompts of at most `most` tokens alone.

    Of the speed runs of several requests at once whole blocks only: a block's time is that of all
    its requests. One at a time they follow each other, so that each has its own share of it.
    """
    lengths = prompt_tokens(report)
    kept = {prompt.id for prompt in report.prompts if lengths.get(prompt.id, most + 1) <= most}
    mixed = {
        (r.temperature, r.concurrency, r.block)
        for r in report.requests
        if r.run == SPEED and r.concurrency > 1 and r.prompt not in kept
    }
    shares = _shares(report, kept)
    return replace(
        report,
        prompts=tuple(prompt for prompt in report.prompts if prompt.id in kept),
        requests=tuple(
            r
            for r in report.requests
            if r.prompt in kept
            and not (r.run == SPEED and (r.temperature, r.concurrency, r.block) in mixed)
        ),
        blocks=tuple(
            replace(b, seconds=b.seconds * share)
            for b in report.blocks
            if (b.temperature, b.concurrency, b.block) not in mixed
            and (share := shares.get(b.key, 1.0)) > 0
        ),
        facts=replace(report.facts, learned=tuple(p for p in report.facts.learned if p in kept)),
        looks=None
        if report.looks is None
        else replace(
            report.looks, strata=tuple(s for s in report.looks.strata if s.context <= most)
        ),
    )


def _shares(report: Report, kept: set[str]) -> dict[BlockKey, float]:
    """How much of the time of each block of the speed runs its `kept` prompts took."""
    whole: dict[BlockKey, float] = defaultdict(float)
    part: dict[BlockKey, float] = defaultdict(float)
    for r in report.requests:
        if r.run == SPEED:
            key = r.arm, r.temperature, r.concurrency, r.block
            whole[key] += r.seconds
            part[key] += r.seconds if r.prompt in kept else 0.0
    return {key: part[key] / seconds for key, seconds in whole.items() if seconds > 0}


def behind(
    report: Report,
    *,
    alone: int,
    least: int,
    good: Callable[[frozenset[str]], bool] = lambda ids: True,
) -> int:
    """The longest bucket of context length that enough prompts stand behind; 0 where none answered.

    That is the longest that holds `alone` prompts, of which it is judged by itself. Where none does
    a bucket is taken together with all longer ones, since a draft is no better where contexts are
    longer: the longest one of which these are `alone` prompts, or `least` where there are fewer
    than `alone` in all, and of which `good` holds. The shortest is left if none is: the report as a
    whole stands behind no less.
    """
    sizes = buckets(report)
    if by_itself := [most for most, size in sizes.items() if size >= alone]:
        return by_itself[-1]
    lengths = prompt_tokens(report)
    enough = alone if len(lengths) >= alone else least
    for most in reversed(sizes):
        ids = frozenset(prompt for prompt, tokens in lengths.items() if bucket(tokens) >= most)
        if len(ids) >= enough and good(ids):
            return most
    return next(iter(sizes), 0)


def good_to(
    report: Report, judged: Callable[[Report], Verdict], *, minimum: int
) -> tuple[int, Verdict] | None:
    """The longest bucket up to which `judged` passes the draft, with that verdict.

    From the shortest on, until one does not pass: tests in an order fixed beforehand each have the
    whole alpha (Maurer, Hothorn and Lehmacher, Multiple Comparisons in Drug Clinical Trials and
    Preclinical Assays, 1995). The whole report is not asked again. Where shorter buckets hold
    fewer than `minimum` prompts together, the first question is the first that has enough.
    """
    found = None
    for most in list(buckets(report))[:-1]:
        part = up_to(report, most)
        if len(part.prompts) < minimum:
            continue
        verdict = judged(part)
        if verdict.phase is not Phase.PASS:
            break
        found = most, verdict
    return found
