"""Text, tables and figures as MLflow's pages render them (GitHub Markdown, without mermaid)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")


def plain(text: object) -> str:
    """Text that shows as it is: on one line, nothing in it a link, a tag or emphasis."""
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown. MLflow's tables have no padding: each cell brings it."""
    rows = [head, ["---"] * len(head), *body]
    lines = (
        "| " + " | ".join(cell if row is rows[1] else f"{cell}&ensp;" for cell in row) + " |"
        for row in rows
    )
    return "\n".join(lines)


def figure(value: Any) -> str:
    """A measured value; a dash where there is none."""
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return "–" if value is None else plain(value)


def amount(count: int) -> str:
    """A number of parameters: 134.5M."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
