"""Which requests of a report belong together: by task, language, context, adapter, temperature.

A draft that is good on average may be dead on one of these. A slice is a set of (prompt,
temperature); requests of any arm and run fall into it by these two. Knows figures; judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from evaluation.report import Report, RequestFigures

Place = tuple[str, float]  # a prompt's id and a temperature
SHORTEST = 256  # tokens: the first bucket of context length; each further one is twice as long
PLAIN = "none"


def slices(report: Report) -> dict[str, frozenset[Place]]:
    """Named sets of (prompt, temperature). A kind of slice with one value only is left out: it
    would be everything."""
    facts = {prompt.id: prompt for prompt in report.prompts}
    tokens = prompt_tokens(report)
    by_kind: dict[str, Callable[[Place], Hashable]] = {
        "task": lambda place: facts[place[0]].task,
        "language": lambda place: facts[place[0]].language,
        "context": lambda place: bucket(tokens[place[0]]) if place[0] in tokens else 0,
        "adapter": lambda place: facts[place[0]].adapter or "none",
        "temperature": lambda place: place[1],
    }
    places = [(p.id, t) for p in report.prompts for t in report.conditions.temperatures]
    found: dict[str, frozenset[Place]] = {}
    for kind, value_of in by_kind.items():
        sets: dict[Hashable, set[Place]] = {}
        for place in places:
            sets.setdefault(value_of(place), set()).add(place)
        if kind == "context":
            sets.pop(0, None)  # nothing was answered there, so that its length is not known
        if len(sets) > 1:
            ordered = sorted(sets, key=lambda v: v if isinstance(v, int | float) else 0)
            found |= {f"{kind} {_named(kind, value)}": frozenset(sets[value]) for value in ordered}
    return found


def within(requests: Iterable[RequestFigures], places: frozenset[Place]) -> list[RequestFigures]:
    """Those of `requests` that fall into a slice."""
    return [r for r in requests if (r.prompt, r.temperature) in places]


def prompt_tokens(report: Report) -> dict[str, int]:
    """A prompt's id to its length in tokens, as the server counted it."""
    return {r.prompt: r.prompt_tokens for r in report.requests if r.arm == PLAIN}


def bucket(tokens: int) -> int:
    """The power of two, 256 or more, that `tokens` does not exceed."""
    longest = SHORTEST
    while longest < tokens:
        longest *= 2
    return longest


def _named(kind: str, value: Hashable) -> str:
    if kind == "context":
        return f"up to {value}"
    return f"{value:g}" if isinstance(value, float) else str(value)
