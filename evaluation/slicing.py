"""Which requests of a report belong together: by task, language, context, adapter, temperature.

A draft that is good on average may be dead on one of these. A slice is a set of (prompt,
temperature); requests of any arm and run fall into it by these two. Knows figures; judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from evaluation.report import Report

Place = tuple[str, float]  # a prompt's id and a temperature
SHORTEST = 256  # tokens: the first bucket of context length; each further one is twice as long
PLAIN = "none"
NO = "none"  # adapter
CONTEXT = "context up to "
Facts = tuple[str, str, int, str]  # a prompt's task, language, context bucket and adapter


def slices(report: Report) -> dict[str, frozenset[Place]]:
    """Named sets of (prompt, temperature). A kind of slice with one value only is left out: it
    would be everything. At an early look what is still to come has values too."""
    tokens = prompt_tokens(report)
    facts = {
        p.id: (p.task, p.language, bucket(tokens[p.id]) if p.id in tokens else 0, p.adapter or NO)
        for p in report.prompts
    }
    found, later = _by_kind(facts, report), _by_kind(_planned(report), report)
    return {
        _named(kind, value): places
        for kind, sets in found.items()
        if len(sets.keys() | later[kind].keys()) > 1
        for value, places in sets.items()
    }


def ahead(report: Report) -> dict[str, frozenset[Place]]:
    """The slices that the last look will have, of places that stand for its prompts; none where
    this is the last one. Context lengths are estimates, made before any prompt was asked."""
    return {
        _named(kind, value): places
        for kind, sets in _by_kind(_planned(report), report).items()
        if len(sets) > 1
        for value, places in sets.items()
    }


def _planned(report: Report) -> dict[str, Facts]:
    """A stand-in for each prompt that the looks are to reach; none where this is the last one."""
    if report.looks is None or report.looks.last:
        return {}
    return {
        f"{number}.{place}": (each.task, each.language, each.context, each.adapter)
        for number, each in enumerate(report.looks.strata)
        for place in range(each.prompts)
    }


def _by_kind(
    facts: Mapping[str, Facts], report: Report
) -> dict[str, dict[Hashable, frozenset[Place]]]:
    """Each kind's values with their places, numbers in their order."""
    places = [(prompt, t) for prompt in facts for t in report.conditions.temperatures]
    by_kind: dict[str, Callable[[Place], Hashable]] = {
        "task": lambda place: facts[place[0]][0],
        "language": lambda place: facts[place[0]][1],
        "context": lambda place: facts[place[0]][2],
        "adapter": lambda place: facts[place[0]][3],
        "temperature": lambda place: place[1],
    }
    found: dict[str, dict[Hashable, frozenset[Place]]] = {}
    for kind, value_of in by_kind.items():
        sets: dict[Hashable, set[Place]] = {}
        for place in places:
            sets.setdefault(value_of(place), set()).add(place)
        if kind == "context":
            sets.pop(0, None)  # nothing was answered there, so that its length is not known
        ordered = sorted(sets, key=lambda v: v if isinstance(v, int | float) else 0)
        found[kind] = {value: frozenset(sets[value]) for value in ordered}
    return found


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
        return f"{CONTEXT}{value}"
    return f"{kind} {value:g}" if isinstance(value, float) else f"{kind} {value}"
