"""Rules that several records share."""

from __future__ import annotations


def positive(record: object, *names: str) -> None:
    """Raises ValueError naming the first of these fields that is below 1."""
    for name in names:
        if getattr(record, name) < 1:
            raise ValueError(f"got {name} = {getattr(record, name)}, wanted 1 or more")
