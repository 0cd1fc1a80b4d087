"""Findings in words: what is seen, on how many requests, since when, what is advised."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from monitoring.causes import ACTIONS
from monitoring.facts import Facts, Finding, SourceFault

SAID = {
    "release_mismatch": "pair {pair} was validated for release {wanted} but {release} is served",
    "dead_draft": "the draft of {whom} is dead: alpha-hat {read}. Output stays right but its "
    "rounds are wasted",
    "template_change": "requests of {whom} are put otherwise than its draft was made for, by "
    "another chat template or system prompt: alpha-hat {read}",
    "engine_change": "{whom} is served by {engine}, its baseline is of {was}: figures before and "
    "after do not compare",
    "mix_shift": "other kinds of requests come to {whom}: alpha-hat {read}, of which {by_mix} by "
    "the mix alone; each kind is drafted as well as before",
    "drift": "acceptance of {whom} fell: alpha-hat {read}",
    "capacity": "{whom} is accepted as it should be; requests are slow because of load{queue}",
    "no_gain": "{whom} is accepted well and is no faster for it: alpha-hat {read}",
    "slow_service": "too many requests of {whom} lie below the floor of its baseline, and no other "
    "cause is known",
}

SOURCES = {
    "source_silent": "no figures come from {source}",
    "source_faulty": "figures of {source} cannot be believed and are left out",
    "clock_back": "the clock of {source} went back",
    "clock_ahead": "the clock of {source} is ahead",
    "unknown_pair": "{source} serves a pair that neither the registry nor the configuration knows",
}


def said(finding: Finding, facts: Facts) -> Finding:
    """The same with its statement."""
    mix, load = facts.mix, facts.load
    read = "unknown" if finding.estimate is None else str(finding.estimate)
    if finding.expected is not None:
        read += f", expected {finding.expected}"
    queue = ""
    if load is not None and load.queue_p95_seconds is not None:
        queue = f", 95 % of them wait up to {load.queue_p95_seconds:.1f} s"
    what = SAID[finding.cause].format(
        pair=facts.pair,
        whom=f"pair {facts.pair}" + (f" for {finding.slice}" if finding.slice else ""),
        wanted=str(facts.expected_release)[:12],
        release=facts.release[:12],
        engine=facts.engine,
        was=facts.baseline_engine,
        by_mix="nothing" if mix is None else f"{mix.by_mix:+.3f}",
        read=read,
        queue=queue,
    )
    others = sorted(_slices(finding) - {finding.slice})
    more = f"; fallen as well: {', '.join(others)}" if others and finding.cause == "drift" else ""
    sure = "; a slower test confirms it" if finding.evidence.get("confirmed") else ""
    then = f". Since {iso(finding.since)}: {ACTIONS[finding.action]}"
    return replace(finding, statement=what + more + sure + then)


def source(fault: SourceFault) -> str:
    """What is wrong with a source."""
    what = SOURCES[fault.kind].format(source=fault.source)
    return f"{what}: {fault.what}. Since {iso(fault.since)}: {ACTIONS['look']}"


def iso(at: float) -> str:
    """A moment as people write it; the year's own limits for one beyond them."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s after 1970"


def _slices(finding: Finding) -> set[str]:
    names = {key for key in finding.evidence if key.startswith("slice.")}
    return {name.removeprefix("slice.").rpartition(".")[0] for name in names}
