"""Says before a measurement what it will be able to decide, and how many prompts each rule needs.

Nothing is measured here: how much prompts differ is taken from an earlier report, or else from
stated assumptions. Knows the policy, the rules and the statistics; no endpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evaluation.completeness import CANDIDATE, INCUMBENT, PLAIN, unmeasurable
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.rules_acceptance import acceptance as acceptance_rules
from evaluation.rules_slices import RULE as SLICE
from evaluation.rules_slices import by_slice
from evaluation.rules_speed import LATENCY, speed, timed_for
from evaluation.statistics import distance_seen, prompts_needed
from speculation.records import Finding, Interval

POWER = 0.9
ROUGE_SPREADS = (0.05, 0.10)  # standard deviation of a prompt's paired difference, if none is known
OVER_INCUMBENT = "acceptance_over_incumbent"


@dataclass(frozen=True, slots=True)
class Need:
    """What one rule needs to pass 9 times in 10."""

    rule: str
    spread: float  # standard deviation of one prompt's (or block's) value; of ratios, of its log
    distance: float  # from the limit to the truth that is supposed
    supposed: str  # that truth in words
    prompts: int | None  # in all; None: no number is enough, the truth is on the limit or beyond


@dataclass(frozen=True, slots=True)
class Plan:
    """What a number of prompts can decide at the policy's alpha with power 0.9."""

    prompts: int
    source: str  # where the spreads are from, in words
    spread: float  # expected standard deviation of one prompt's difference in acceptance
    sure_gain: float  # a draft truly better than the incumbent by this passes 9 times in 10
    prompts_if_equal: int | None  # to pass a draft that is truly as good as the incumbent
    rouge_spreads: tuple[float, ...]
    prompts_for_rouge: tuple[int | None, ...]  # at these spreads; None: no number is enough
    needs: tuple[Need, ...] = ()  # of an earlier report's rules
    minimum: int = 0  # prompts below which the policy gives no verdict at all

    @property
    def too_few(self) -> str | None:
        """Why so many prompts cannot be judged, whatever is measured of them."""
        if self.prompts >= self.minimum:
            return None
        given = "1 prompt gives" if self.prompts == 1 else f"{self.prompts} prompts give"
        return (
            f"{given} no verdict but INCONCLUSIVE, whatever is measured: the policy wants "
            f"{self.minimum} at least (minimum_prompts), {self.minimum - self.prompts} more."
        )

    @property
    def most_needed(self) -> Need | None:
        """The rule that needs most, of those that some number of prompts satisfies."""
        told = [need for need in self.needs if need.prompts is not None]
        return max(told, key=lambda need: need.prompts or 0, default=None)

    @property
    def sentences(self) -> Sequence[str]:
        """For people, one idea each."""
        equal = self.prompts_if_equal
        rouge = " or ".join(
            f"{'no end of' if count is None else count} (spread {spread:.2f})"
            for count, spread in zip(self.prompts_for_rouge, self.rouge_spreads, strict=True)
        )
        gain = "no worse" if self.sure_gain <= 0 else f"better by {self.sure_gain:.3f}"
        lines = [
            f"How much prompts differ is {self.source}.",
            self.too_few
            or f"With {self.prompts} prompts a draft that is truly {gain} in acceptance passes "
            "9 times in 10.",
            f"One that is exactly as good needs {'no end of' if equal is None else equal} prompts.",
            f"Should the texts have to be compared by ROUGE-L, that needs {rouge} prompts.",
        ]
        for need in self.needs:
            count = "no number of prompts is enough" if need.prompts is None else need.prompts
            lines.append(f"  {need.rule}: {count} ({need.supposed}, spread {need.spread:.3f})")
        if (most := self.most_needed) is not None:
            lines.append(f"In all {most.prompts} prompts, which {most.rule} needs most of.")
        return lines


def plan(
    policy: Policy,
    *,
    report: Report | None = None,  # of an earlier measurement; None: from what follows
    draft_len: int = 4,
    answer_tokens: float = 80.0,
    acceptance: float = 0.5,  # expected, of either draft
    correlation: float = 0.10,  # within a request
) -> Plan:
    """What the policy needs. Raises ValueError for an earlier report that tells nothing.

    Without a report the spread follows from the number of judged tokens in an answer and their
    correlation; the two drafts are taken as independent given the prompt, which errs on the side
    of more prompts.
    """
    needs: tuple[Need, ...] = ()
    rouge: tuple[float, ...] = ROUGE_SPREADS
    spread = assumed_spread(draft_len, answer_tokens, acceptance, correlation)
    source = (
        f"assumed: {answer_tokens:g} tokens an answer, acceptance {acceptance:g}, correlation "
        f"{correlation:g} within a request"
    )
    if report is not None:
        if (reason := unmeasurable(report, policy)) is not None:
            raise ValueError(f"the earlier report tells no variance: {reason}")
        needs = tuple(_needs(report, policy))
        source = f"as observed on {len(report.prompts)} prompts (report {report.digest[:12]})"
        spread = next((need.spread for need in needs if need.rule == OVER_INCUMBENT), spread)
        if INCUMBENT not in report.arms:
            source += ", but of the difference between two drafts as assumed: there was one draft"
        if seen := rouge_spread(report):  # 0: every text was the same, which tells no spread
            rouge = (seen,)
    distance = distance_seen(spread, policy.prompts, alpha=policy.alpha, power=POWER)
    return Plan(
        prompts=policy.prompts,
        source=source,
        spread=spread,
        sure_gain=distance - policy.acceptance_margin,
        prompts_if_equal=_prompts(spread, policy.acceptance_margin, policy),
        rouge_spreads=rouge,
        prompts_for_rouge=tuple(_prompts(each, policy.rouge_l_margin, policy) for each in rouge),
        needs=needs,
        minimum=policy.minimum_prompts,
    )


def assumed_spread(
    draft_len: int, answer_tokens: float, acceptance: float, correlation: float
) -> float:
    """Standard deviation of one prompt's difference in acceptance between two drafts."""
    survivals = [acceptance**position for position in range(draft_len + 1)]
    judged = answer_tokens * sum(survivals[:-1]) / sum(survivals)
    one = acceptance * (1 - acceptance) / judged * (1 + (judged - 1) * correlation)
    return math.sqrt(2 * one)


def rouge_spread(report: Report) -> float | None:
    """Standard deviation of a prompt's difference in ROUGE-L to its reference, with and without
    the draft; of ROUGE-L to plain decoding's text where there are no references. None: unknown."""
    plain = {(r.prompt, r.temperature): r.rouge_l_reference for r in report.of(PLAIN)}
    ours = report.of(CANDIDATE)
    differences = [
        r.rouge_l_reference - other
        for r in ours
        if r.rouge_l_reference is not None
        and (other := plain.get((r.prompt, r.temperature))) is not None
    ] or [r.parity.rouge_l for r in ours if r.parity is not None]
    return float(np.std(differences, ddof=1)) if len(differences) > 1 else None


def _needs(report: Report, policy: Policy) -> Iterator[Need]:
    rules = (*acceptance_rules(report, policy), *by_slice(report, policy), *speed(report, policy))
    for finding in rules:
        interval, limit = finding.interval, finding.threshold
        if interval is None or limit is None:
            continue
        slice_of = finding.rule.startswith(SLICE)
        beside = finding.rule == OVER_INCUMBENT or (slice_of and INCUMBENT in report.arms)
        log = not slice_of and not finding.rule.startswith("acceptance")
        spread = _spread(interval, policy.alpha, log=log)
        if beside:
            distance, supposed = -limit, "if the two drafts are equal"
        elif log:
            distance = math.log(limit / interval.estimate)
            distance = -distance if finding.rule.startswith("speed") else distance
            supposed = f"if it stays {interval.estimate:.3f}"
        else:
            distance, supposed = interval.estimate - limit, f"if it stays {interval.estimate:.3f}"
        units = _prompts(spread, distance, policy) if distance > 0 else None
        prompts = None if units is None else _in_all(units, finding, interval, report, policy)
        yield Need(finding.rule, spread, distance, supposed, prompts)


def _in_all(
    units: int, finding: Finding, interval: Interval, report: Report, policy: Policy
) -> int:
    """Prompts of a whole measurement that hold so many prompts of a slice, or blocks of the speed
    runs, as this one did."""
    if finding.rule.startswith((*LATENCY, "speed")):
        return max(policy.minimum_prompts, timed_for(max(units, 2), interval.n, report))
    least = policy.slice_minimum if finding.rule.startswith(SLICE) else 2
    return max(
        policy.minimum_prompts, math.ceil(max(units, least) * len(report.prompts) / interval.n)
    )


def _spread(interval: Interval, alpha: float, *, log: bool) -> float:
    """Standard deviation of one unit, out of an interval over `n` of them."""
    low, high = (math.log(b) if log else b for b in (interval.low, interval.high))
    reach = float(stats.t.ppf(1 - alpha, interval.n - 1))
    return (high - low) / 2 / reach * math.sqrt(interval.n)


def _prompts(spread: float, distance: float, policy: Policy) -> int | None:
    return prompts_needed(spread, distance, alpha=policy.alpha, power=POWER)
