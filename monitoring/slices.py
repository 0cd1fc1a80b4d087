"""A request's slices: by adapter, by length of its prompt, by temperature.

Knows names; knows nothing of what slices do. A cell is what a request is of all kinds at once:
slices overlap, cells do not, so what is expected of a request is looked up by its cell.
"""

from __future__ import annotations

from speculation.records import Exchange

SHORTEST = 256  # tokens: the first bucket; each further one is twice as long, as in reports
NO = "none"  # adapter
LUKEWARM, WARM = 0.5, 1.0  # temperatures: greedy, up to the one, up to the other, above
BETWEEN = "|"


def slices_of(exchange: Exchange) -> tuple[str, ...]:
    """The names of a request's slices, one of each kind that is known."""
    return named(exchange.adapter, exchange.prompt_tokens, exchange.temperature)


def named(adapter: str | None, prompt_tokens: int, temperature: float | None) -> tuple[str, ...]:
    """Names by figures.

    >>> named("tenor", 700, 0.0)
    ('adapter=tenor', 'context up to 1024', 'temperature=0')
    >>> named(None, 3, None)
    ('adapter=none', 'context up to 256')
    """
    longest = SHORTEST
    while longest < prompt_tokens:
        longest *= 2
    found = [f"adapter={(adapter or NO).replace(BETWEEN, '/')}", f"context up to {longest}"]
    if temperature is not None:
        found.append(_temperature(temperature))
    return tuple(found)


def cell_of(slices: tuple[str, ...]) -> str:
    """The cell of a request with these slices."""
    return BETWEEN.join(slices)


def slices_in(cell: str) -> tuple[str, ...]:
    """The slices of a cell.

    >>> slices_in(cell_of(("adapter=none", "temperature=0")))
    ('adapter=none', 'temperature=0')
    """
    return tuple(cell.split(BETWEEN)) if cell else ()


def kind(name: str) -> str:
    """What a slice is one of: "adapter", "context", "temperature"."""
    return name.partition("=")[0].partition(" ")[0]


def _temperature(value: float) -> str:
    if value <= 0:
        return "temperature=0"
    if value > WARM:
        return f"temperature above {WARM:g}"
    return f"temperature up to {LUKEWARM if value <= LUKEWARM else WARM:g}"
