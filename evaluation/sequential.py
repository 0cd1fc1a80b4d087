"""Measures until the verdict is safe or the budget ends, without paying for it in false verdicts.

Looks are planned before the first prompt is sent (spending.py); at each one everything measured so
far is judged at that look's level, and the report says which look it is, so that a stored one is
judged the same again. Measures nothing itself: it is handed what does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluation.client import MeasurementError
from evaluation.report import Report
from evaluation.samples import SPEED, Measurement, Sample, SpeedBlock, prompts_digest
from evaluation.slowing import slowed
from evaluation.spending import Looks, Stratum, planned
from speculation.records import Phase, Verdict

MOST_LOOKS = 8  # of 20 the first has 0.0001, which a bootstrap of 5,000 cannot tell
LOOKS = 4  # more save little: with 4 a clear case ends after a quarter or a half of the budget


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the last look found, and how it came to it."""

    report: Report  # of everything measured
    verdicts: tuple[Verdict, ...]  # one a look that was taken

    @property
    def verdict(self) -> Verdict:
        return self.verdicts[-1]


def until_sure(
    upto: Callable[[Looks], Report],
    judged: Callable[[Report], Verdict],
    looks: Sequence[int],
    *,
    strata: Sequence[Stratum],
    seen: Callable[[Report, Verdict], None] = lambda report, verdict: None,
) -> Outcome:
    """Take the planned looks until one is conclusive; the last one's verdict stands as it is.

    `looks` are the prompts at each (`plan_looks`), `strata` what kinds of prompts all of them hold
    (`strata_of`). `upto` measures what a look still lacks and
    returns the report of all of its prompts; `judged` judges a report; `seen` is told of each. A
    measurement that ended early ends the looking: what it lacks, no later look would have.
    """
    if not looks:
        raise ValueError("got no looks, wanted at least one")
    verdicts: list[Verdict] = []
    for number in range(1, len(looks) + 1):
        now = Looks(number, tuple(looks), tuple(strata))
        report = replace(upto(now), looks=now)
        verdict = judged(report)
        verdicts.append(verdict)
        seen(report, verdict)
        if verdict.phase is not Phase.INCONCLUSIVE or report.incomplete is not None:
            break
    return Outcome(report, tuple(verdicts))


def plan_looks(prompts: int, *, minimum: int, looks: int = LOOKS) -> tuple[int, ...]:
    """Prompts at each look of a budget: even steps, none before a verdict is possible at all."""
    if prompts < 1 or looks < 1:
        raise ValueError(f"got {looks} looks at {prompts} prompts, wanted at least one of each")
    if looks > MOST_LOOKS:
        raise ValueError(
            f"got {looks} looks, wanted at most {MOST_LOOKS}: of more the first has a share of "
            "alpha that a bootstrap cannot tell"
        )
    return planned(prompts, looks, least=minimum)


def joined(parts: Sequence[Measurement]) -> Measurement:
    """Batches of prompts that were measured one after the other, as one measurement.

    The blocks of the speed runs are numbered on; an endpoint that slowed down from batch to batch
    makes it incomplete. Raises MeasurementError where two batches were not
    measured in the same way: then they are not of one thing.
    """
    first = parts[0]
    counted = ("prompts_digest", "prompts", "speed_prompts", "seed")  # each batch has its own
    own = {name: getattr(first.conditions, name) for name in counted}
    if any(replace(part.conditions, **own) != first.conditions for part in parts):
        raise MeasurementError(
            "the endpoint or its pairs changed between two looks: what was measured before "
            "and after is not comparable"
        )
    samples, blocks, _ = _numbered_on(parts)
    prompts = tuple(prompt for part in parts for prompt in part.prompts)
    errors: Counter[str] = Counter()
    for part in parts:
        errors.update(part.errors)
    reasons = [part.incomplete for part in parts if part.incomplete is not None]
    reasons += slowed_between(parts).values()
    return Measurement(
        replace(
            first.conditions,
            prompts_digest=prompts_digest(prompts),
            prompts=len(prompts),
            speed_prompts=sum(part.conditions.speed_prompts for part in parts),
        ),
        prompts,
        tuple(samples),
        tuple(blocks),
        dict(errors),
        next(iter(reasons), None),
    )


def slowed_between(parts: Sequence[Measurement]) -> dict[tuple[float, int], str]:
    """Why speed cannot be told from all batches together, by (temperature, concurrency): a batch
    may have too few blocks to tell by itself, and the machine may be another one in the next."""
    if len(parts) < 2 or any(part.incomplete is not None for part in parts):
        return {}
    samples, blocks, since = _numbered_on(parts)
    return {**slowed(blocks, samples), **slowed(blocks, samples, since=since)}


def _numbered_on(parts: Sequence[Measurement]) -> tuple[list[Sample], list[SpeedBlock], int]:
    """Samples and blocks of all batches, with blocks of the speed runs numbered on, and the number
    of the last batch's first."""
    samples: list[Sample] = []
    blocks: list[SpeedBlock] = []
    on = 0
    for part in parts:
        on = 1 + max((block.block for block in blocks), default=-1)
        samples += [
            replace(sample, block=sample.block + on) if sample.run == SPEED else sample
            for sample in part.samples
        ]
        blocks += [replace(block, block=block.block + on) for block in part.blocks]
    return samples, blocks, on
