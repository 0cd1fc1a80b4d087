"""Speed rules: net gain over plain decoding at every measured concurrency, and latency in bounds.

A draft that is accepted well gains nothing where the machine is busy already, so each number of
requests at once is judged by itself. Throughput is required; the first token and the tail guard
comfort, and the policy may forgive some of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from evaluation.completeness import CANDIDATE, PLAIN
from evaluation.fading import faded
from evaluation.limits import above, below, plainly
from evaluation.policy import Policy, prompts_to_time
from evaluation.report import Report
from evaluation.samples import SPEED
from evaluation.speed import TAIL_REQUESTS, Quantile, SpeedFigures, speed_figures
from evaluation.statistics import requests_to_bound
from speculation.records import Finding, Interval, Phase

P95 = 0.95
LATENCY = ("first_token", "latency")  # how the rules begin that a policy may forgive


def speed(report: Report, policy: Policy) -> Iterator[Finding]:
    """Every concurrency that was measured, and every one that the policy wants a gain at."""
    measured = report.conditions.speed_concurrencies
    for at_once in sorted({*measured, *policy.must_gain}):
        figures = speed_figures(report, CANDIDATE, at_once, alpha=policy.alpha)
        findings = [_throughput(report, policy, at_once, figures)]
        if figures is not None:
            findings += _latency(report, policy, figures)
        yield from (_more_in_all(finding, report) for finding in findings)
    yield from _kept(report)
    yield from _tails(report, policy)
    yield from _busy(report)


def timed_for(units: int, of: int, report: Report) -> int:
    """Prompts in all that make `units` blocks, where this report's made `of`."""
    return prompts_to_time(math.ceil(report.conditions.speed_prompts * units / of))


def _more_in_all(finding: Finding, report: Report) -> Finding:
    """`more` in prompts of the whole measurement: only some of those are timed."""
    if finding.more is None or finding.interval is None:
        return finding
    each = report.conditions.block_prompts * _at_once(finding.rule)
    blocks = finding.interval.n + math.ceil(finding.more / each)
    more = max(1, timed_for(blocks, finding.interval.n, report) - len(report.prompts))
    return replace(finding, more=more)


def _at_once(rule: str) -> int:
    return int(rule.partition(" at ")[2] or 1)


def forgivable(finding: Finding) -> bool:
    """Whether a policy's limits may excuse it."""
    return finding.rule.startswith(LATENCY)


def _throughput(
    report: Report, policy: Policy, at_once: int, figures: SpeedFigures | None
) -> Finding:
    must = at_once in policy.must_gain
    limit = policy.speed_over_plain if must else policy.speed_elsewhere
    told = (
        f"{_load(at_once)}, from question to answer, the new draft is "
        f"{_times(None if figures is None else figures.speedup)} as fast as decoding without a "
        f"draft, and it has to be above {limit:g}"
    )
    if must and at_once not in report.conditions.speed_concurrencies:
        told += ", but that was not measured"
    return above(
        _named("speed_over_plain", at_once),
        told,
        None if figures is None else figures.speedup,
        limit,
        policy,
        log=True,
        each=report.conditions.block_prompts * at_once,
        unit="prompts in the speed runs",
    )


def _latency(report: Report, policy: Policy, figures: SpeedFigures) -> Iterator[Finding]:
    first = figures.first_token.get("p50")
    yield _bounded("first_token", "the first token", "p50", first, figures, policy, report)
    for share in ("p95", "p99"):
        if share == "p95" and figures.requests < requests_to_bound(P95, policy.alpha):
            yield from _later(policy, figures, report)
        elif share in figures.latency:
            yield _bounded(
                f"latency_{share}",
                "the whole answer",
                share,
                figures.latency.get(share),
                figures,
                policy,
                report,
            )


def _later(policy: Policy, figures: SpeedFigures, report: Report) -> Iterator[Finding]:
    """A p95 that cannot be told at this look and can at the last is not waved through now."""
    if report.looks is None or report.looks.last:
        return
    growth = report.looks.planned[-1] / report.looks.planned[report.looks.number - 1]
    needed = requests_to_bound(P95, policy.alpha)
    if figures.requests * growth >= requests_to_bound(P95, 0.05):
        yield Finding(
            _named("latency_p95", figures.concurrency),
            Phase.INCONCLUSIVE,
            f"{_load(figures.concurrency)}, {figures.requests} requests an arm were timed so far, "
            f"and at this look it takes {needed} to bound the time of 19 of 20",
        )


def _bounded(
    rule: str,
    what: str,
    share: str,
    quantile: Quantile | None,
    figures: SpeedFigures,
    policy: Policy,
    report: Report,
) -> Finding:
    limit = {
        "p50": _first_token_limit(policy, quantile),
        "p95": policy.p95_over_plain,
        "p99": policy.p99_over_plain,
    }[share]
    ratio = None if quantile is None else quantile.ratio
    seconds = (
        ""
        if quantile is None or quantile.plain_seconds is None
        else f" ({quantile.seconds:.3f} s against {quantile.plain_seconds:.3f} s)"
    )
    which = {"p50": "half of the requests", "p95": "19 of 20 requests", "p99": "99 of 100 requests"}
    told = (
        f"{_load(figures.concurrency)}, {which[share]} have {what} within {_times(ratio)} the time "
        f"that plain decoding takes{seconds}, and it has to be below {limit:g}"
    )
    return below(
        _named(rule, figures.concurrency),
        told,
        ratio,
        limit,
        policy,
        each=report.conditions.block_prompts * figures.concurrency,
        unit="prompts in the speed runs",
    )


def _first_token_limit(policy: Policy, first: Quantile | None) -> float:
    """Of a first token that comes within milliseconds a ratio says nothing that anybody notices."""
    if first is None or not first.plain_seconds:
        return policy.first_token_over_plain
    return max(policy.first_token_over_plain, 1 + policy.first_token_seconds / first.plain_seconds)


def _kept(report: Report) -> Iterator[Finding]:
    """Says where what was measured is an average of two speeds, of which the later one serves."""
    for reason, at_once in faded(report):
        said = f"{_load(at_once)}, {reason}"
        yield Finding(_named("speed_not_kept", at_once), Phase.INCONCLUSIVE, said)


def _tails(report: Report, policy: Policy) -> Iterator[Finding]:
    """Says which tails nobody judged, so that silence is not taken for consent."""
    least = requests_to_bound(P95, policy.alpha)
    for rule, what, needed in (
        ("p95_not_judged", "the slowest twentieth", least),
        ("p99_not_judged", "the slowest hundredth", TAIL_REQUESTS + 1),
    ):
        timed = {
            at_once: min(len(report.of(a, SPEED, concurrency=at_once)) for a in (CANDIDATE, PLAIN))
            for at_once in report.conditions.speed_concurrencies
        }
        short = [f"{few} with {load} at once" for load, few in timed.items() if few < needed]
        if short:
            yield Finding(
                rule,
                Phase.PASS,
                f"{what} is judged from {needed:,} requests an arm on, and there were "
                f"{', '.join(short)}",
            )


def _busy(report: Report) -> Iterator[Finding]:
    """Says where nobody looked at a busy server."""
    if set(report.conditions.speed_concurrencies) == {1}:
        yield Finding(
            "busy_not_measured",
            Phase.PASS,
            "speed was measured with one request at a time only, so nothing is known of a busy "
            "server, where a draft gains less and may cost: measure speed at more requests at once "
            "too, as many as it serves",
        )


def _named(rule: str, at_once: int) -> str:
    return rule if at_once == 1 else f"{rule} at {at_once}"


def _load(at_once: int) -> str:
    return "one request at a time" if at_once == 1 else f"{at_once} requests at once"


def _times(ratio: Interval | None) -> str:
    return f"{plainly(ratio)} times" if ratio is not None else "an unknown number of times"
