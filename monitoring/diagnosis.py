"""Facts in, findings out: every cause that holds, the most specific first.

Pure: no clock, no statistics of its own, no files. Knows causes and what makes each hold; knows
nothing of how facts were gathered or of who is told when. Where one cause explains another, that
other is not among the findings: a dead draft is not also a drift.
"""

from __future__ import annotations

from collections.abc import Iterator

from monitoring import wording
from monitoring.causes import CAUSES, inhibited
from monitoring.facts import Excursion, Facts, Finding, SliceFacts, SourceFault
from monitoring.slicing import fall, fallen, to_name
from speculation.records import Interval

OFF_REQUESTS = 5  # turned off by rejections for so many: evidence enough
OFF_SHARE = 0.80  # of the last requests that were decoded plainly because drafting costs more
FULL_SHARE = 0.50  # of the last looks with every slot taken
QUEUE_TIMES, QUEUE_SECONDS = 2.0, 1.0  # a queue that grew so many times, to so much, is one
WITHIN = -0.05  # a fall inside slices beyond this is not explained by their mix
TEMPLATE_SECONDS = 3600.0  # a fall that began so near a change of template began with it
UNKNOWN_ALIVE = 0.30  # least acceptance of a living draft of which no baseline is known


def diagnose(facts: Facts) -> list[Finding]:
    """Every cause that explains something; none when nothing is wrong or it is too early."""
    found = list(_holding(facts))
    return [
        one
        for one in found
        if not any(
            inhibited(one.cause, part=one.slice, by=other.cause, by_part=other.slice)
            for other in found
        )
    ]


def diagnose_source(fault: SourceFault) -> Finding:
    """A source that is silent or lies is named by itself, and is never a drift."""
    return Finding(
        fault.pair,
        "",
        "",
        fault.kind,
        wording.source(fault),
        fault.since,
        slice=f"source={fault.source}",
        action=CAUSES[fault.kind].action,
    )


def mismatched(release: str, expected: str | None) -> bool:
    """Is another release served than the pair's? A digest that is not known accuses nobody."""
    return bool(release and expected) and release != expected


def _holding(facts: Facts) -> Iterator[Finding]:
    """All that hold, whatever explains what."""
    template = _template_alone(facts)
    if mismatched(facts.release, facts.expected_release) and not template:
        since = facts.at if facts.mismatched_since is None else facts.mismatched_since
        yield _finding(facts, "release_mismatch", since)
    dead = _dead(facts)
    if dead is not None:
        yield _finding(facts, "dead_draft", dead.since, excursion=dead, estimate=facts.recent)
    down = None if dead else _down(facts)
    changed = _template_since(facts, down)
    if template:
        changed = facts.at if facts.mismatched_since is None else facts.mismatched_since
    if changed is not None:
        yield _finding(facts, "template_change", changed, excursion=down, estimate=facts.recent)
    if facts.engine and facts.baseline_engine and facts.engine != facts.baseline_engine:
        since = facts.at if facts.engine_since is None else facts.engine_since
        yield _finding(facts, "engine_change", since, requests=facts.engine_requests)
    mix = facts.mix
    if mix is not None and mix.moved and not (mix.within and mix.within.high < WITHIN):
        evidence = {"by_mix": mix.by_mix, "p_value": mix.p_value}
        yield _finding(facts, "mix_shift", mix.since, estimate=facts.recent, evidence=evidence)
    if dead is None:
        yield from _parts(facts, down)
        yield from _gains(facts, steady=down is None)
    if facts.burning is not None:
        burning = facts.burning
        yield _finding(facts, "slow_service", burning.since, excursion=burning)


def _template_alone(facts: Facts) -> bool:
    """Are the releases the same but for the chat template?"""
    ours, theirs = facts.expected_parts, facts.served_parts
    differing = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    return mismatched(facts.release, facts.expected_release) and differing == {"chat_template"}


def _template_since(facts: Facts, down: Excursion | None) -> float | None:
    """Since when another system prompt explains a fall, where it does."""
    if facts.template_since is None or down is None:
        return None
    near = abs(down.since - facts.template_since) <= TEMPLATE_SECONDS
    return facts.template_since if near else None


def _dead(facts: Facts) -> Excursion | None:
    """The excursion of a draft that is dead, or that was turned off for being so."""
    if facts.dead is not None:
        return facts.dead
    off, recent = facts.rejected_off, facts.recent
    if off is None or off.requests < OFF_REQUESTS or recent is None:
        return None
    usual = UNKNOWN_ALIVE if facts.baseline is None else facts.baseline.estimate
    return off if recent.high < usual / 2 else None


def _down(facts: Facts) -> Excursion | None:
    """The excursion of a fall that is no death."""
    if facts.dying and facts.rejected_off is None:
        return None
    if facts.fallen is not None:
        return facts.fallen
    if facts.confirmed and facts.slow:
        return min(facts.slow, key=lambda one: one.since)
    off = facts.rejected_off
    return off if off is not None and off.requests >= OFF_REQUESTS else None


def _parts(facts: Facts, down: Excursion | None) -> Iterator[Finding]:
    """A fall, of the slice that it is of; a slice that died or fell is one by itself."""
    for one in facts.slices:
        if one.dead is not None:
            yield _of_slice(facts, "dead_draft", one, one.dead)
    living = [one for one in facts.slices if one.dead is None]
    own = [one for one in living if one.fallen is not None]
    named = to_name(living) if down is not None or own else None
    if named is not None:
        excursion = named.fallen or down or own[0].fallen
        if excursion is not None:
            yield _of_slice(facts, "drift", named, excursion)
    elif down is not None:
        yield _finding(facts, "drift", down.since, excursion=down, estimate=facts.recent)
    elif own and own[0].fallen is not None:
        yield _of_slice(facts, "drift", own[0], own[0].fallen)


def _gains(facts: Facts, *, steady: bool) -> Iterator[Finding]:
    """Accepted as it should be, and no faster for it: the load's doing, or the draft's price."""
    load, gain = facts.load, facts.gain
    costs = gain is not None and (
        (gain.off_by_cost_share or 0.0) >= OFF_SHARE
        or (gain.speedup is not None and gain.speedup.high < 1.0)
    )
    queued = False
    if load is not None and load.queue_p95_seconds is not None:
        before = load.queue_p95_before_seconds or 0.0
        grew = load.queue_p95_seconds >= max(QUEUE_SECONDS, QUEUE_TIMES * before)
        queued = grew and (load.full_share or 0.0) >= FULL_SHARE
    if queued or (costs and gain is not None and gain.load == "loaded"):
        began = load.since if queued and load is not None else gain.since if gain else None
        evidence = {
            name: value
            for name, value in (
                ("queue_p95_seconds", load.queue_p95_seconds if load else None),
                ("full_share", load.full_share if load else None),
            )
            if value is not None
        }
        since = facts.at if began is None else began
        yield _finding(facts, "capacity", since, evidence=evidence)
    elif costs and gain is not None and steady:
        evidence = {} if gain.off_by_cost_share is None else {"off_share": gain.off_by_cost_share}
        if gain.speedup is not None:
            evidence["speedup"] = gain.speedup.estimate
        yield _finding(
            facts,
            "no_gain",
            facts.at if gain.since is None else gain.since,
            requests=gain.requests,
            estimate=facts.recent,
            evidence=evidence,
        )


def _finding(
    facts: Facts,
    cause: str,
    since: float,
    *,
    excursion: Excursion | None = None,
    estimate: Interval | None = None,
    requests: int = 0,
    part: str = "",
    expected: Interval | None = None,
    evidence: dict[str, float] | None = None,
) -> Finding:
    expected = expected or (facts.baseline if estimate is not None or excursion else None)
    seen = estimate.n if estimate else excursion.requests if excursion else requests
    told = dict(evidence or {})
    if excursion is not None and excursion.level:
        told["level"] = excursion.level
    for name, interval in (("acceptance", estimate), ("baseline", expected)):
        if interval is not None:
            told |= {
                name: interval.estimate,
                f"{name}_low": interval.low,
                f"{name}_high": interval.high,
            }
    if cause in ("drift", "slow_service", "template_change"):
        told["confirmed"] = float(facts.confirmed)
    if facts.forwards_per_request is not None:
        told["forwards_per_request"] = facts.forwards_per_request.estimate
    for one in fallen(facts.slices):
        if one.recent is not None:
            told[f"slice.{one.name}.estimate"] = one.recent.estimate
            told[f"slice.{one.name}.fall"] = fall(one)
    bare = Finding(
        facts.pair,
        facts.drafter,
        facts.release,
        cause,
        "",
        since,
        seen,
        part,
        estimate,
        expected,
        told,
        CAUSES[cause].action,
    )
    return wording.said(bare, facts)


def _of_slice(facts: Facts, cause: str, one: SliceFacts, excursion: Excursion) -> Finding:
    return _finding(
        facts,
        cause,
        excursion.since,
        excursion=excursion,
        estimate=one.recent,
        expected=one.expected,
        part=one.name,
    )
