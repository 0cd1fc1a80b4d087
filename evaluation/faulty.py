"""Reports in which figures are missing, are no numbers, or cannot be: none of them may ever pass,
but for those lies that nothing contradicts (OPEN), which are shown because they do.

Each takes a good report of a good candidate and spoils it in one way. Measuring refuses most of
them; a report may come from anywhere, so the gate is asked all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from evaluation.report import Report, RequestFigures
from evaluation.simulation import upto
from speculation.records import Counts

DRAFTED = 4  # tokens a round, of reports that are drawn
NOT_A_NUMBER = cast(int, math.nan)  # JSON as Python reads it may hold one where a count belongs


def no_data(report: Report) -> Report:
    return upto(report, 0)


def one_prompt(report: Report) -> Report:
    return upto(report, 1)


def not_a_number(report: Report) -> Report:
    """One request of the candidate has counts that are none."""
    spoilt = (NOT_A_NUMBER,) * 4
    return _first(report, lambda c: replace(c, accepted_per_position=spoilt))


def not_a_time(report: Report) -> Report:
    """One timed request of the candidate took not a number of seconds."""
    place = next(
        i for i, r in enumerate(report.requests) if (r.arm, r.run) == ("candidate", "speed")
    )
    requests = list(report.requests)
    requests[place] = replace(requests[place], seconds=math.nan)
    return replace(report, requests=tuple(requests))


def none_drafted(report: Report) -> Report:
    """The candidate's draft proposed nothing: it was served by plain decoding."""
    return _each(report, lambda c: Counts(plain_forwards=c.emitted, emitted=c.emitted))


def more_accepted(report: Report) -> Report:
    """The endpoint claims twice as many accepted tokens as it had."""
    return _each(
        report,
        lambda c: replace(c, accepted_per_position=tuple(2 * n for n in c.accepted_per_position)),
    )


def fewer_judged(report: Report) -> Report:
    """It leaves out of its counts most of what the target rejected."""

    def left_out(counts: Counts) -> Counts:
        judged = zip(counts.judged_per_position, counts.accepted_per_position, strict=True)
        return replace(counts, judged_per_position=tuple((j + 3 * a) // 4 for j, a in judged))

    return _each(report, left_out)


def longer_answers(report: Report) -> Report:
    """Every round has all its tokens accepted, and the usage has as many tokens as that makes: no
    count contradicts another, and texts and seconds are what they were. The texts give it away."""

    def lied(request: RequestFigures) -> RequestFigures:
        if request.arm != "candidate":
            return request
        rounds, positions = request.counts.rounds, len(request.counts.judged_per_position)
        every = (rounds,) * positions
        emitted = rounds * (positions + 1) + 1
        told = Counts(rounds, 1, rounds * positions, emitted, every, every)
        return replace(request, counts=told, completion_tokens=emitted)

    return replace(report, requests=tuple(map(lied, report.requests)))


def keeping_lengths(report: Report) -> Report:
    """Fewer rounds than there were, all they drafted accepted, and each answer as long as it is:
    nothing contradicts it, and the gate believes it. Acceptance is the server's own word."""
    return _each(report, all_accepted)


def all_accepted(counts: Counts) -> Counts:
    """As many tokens, made by a prefill and rounds of which no token was rejected."""
    rounds, rest = divmod(counts.emitted - 1, DRAFTED + 1)
    every = (rounds,) * DRAFTED
    return Counts(rounds, 1 + rest, rounds * DRAFTED, counts.emitted, every, every)


FAULTY: Mapping[str, Callable[[Report], Report]] = {
    "no data": no_data,
    "one prompt": one_prompt,
    "NaN counts": not_a_number,
    "NaN seconds": not_a_time,
    "none drafted": none_drafted,
    "lies: accepted": more_accepted,
    "lies: judged": fewer_judged,
    "lies: longer answers": longer_answers,
}
# What no rule can tell by the figures alone: shown beside the others, and held to no bound.
OPEN: Mapping[str, Callable[[Report], Report]] = {"lies: keeping lengths": keeping_lengths}


def _each(report: Report, spoil: Callable[[Counts], Counts]) -> Report:
    """Every request of the candidate, spoilt."""

    def spoilt(request: RequestFigures) -> RequestFigures:
        if request.arm != "candidate":
            return request
        return replace(request, counts=spoil(request.counts))

    return replace(report, requests=tuple(map(spoilt, report.requests)))


def _first(report: Report, spoil: Callable[[Counts], Counts]) -> Report:
    """The candidate's first request, spoilt."""
    place = next(i for i, r in enumerate(report.requests) if r.arm == "candidate")
    requests = list(report.requests)
    requests[place] = replace(requests[place], counts=spoil(requests[place].counts))
    return replace(report, requests=tuple(requests))
