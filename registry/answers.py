"""A yes or a no with its reasons. Knows nothing of what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer. `notes` do not forbid the pair; they say what its server will have to do."""

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, reasons: Sequence[str], notes: Sequence[str]) -> Compatibility:
        return cls(not reasons, tuple(reasons), tuple(notes))

    def also(self, other: Compatibility) -> Compatibility:
        """Both answers as one."""
        return Compatibility.of(self.reasons + other.reasons, self.notes + other.notes)
