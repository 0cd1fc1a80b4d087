"""One command at a time measures into a folder: two would write one journal and one report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOCK = "measuring.lock"


class MeasuredElsewhereError(ValueError):
    """Another command measures into that folder now."""


@contextmanager
def measuring_alone(out: Path) -> Iterator[None]:
    """Be the one that measures into `out`. Raises MeasuredElsewhereError, at once.

    The system frees the lock with its holder, however that ends.
    """
    from flows.steps import alone

    with ExitStack() as held:
        try:
            held.enter_context(alone(out / LOCK, seconds=0.0))
        except TimeoutError:
            raise MeasuredElsewhereError(
                f"another evaluate measures into {out}: wait until it ends, or name another --out"
            ) from None
        yield
