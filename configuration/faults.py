"""What is wrong with what a user wrote, in a form that can be shown to them.

Knows nothing of where the values came from beyond the key that names each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to put right."""

    key: str  # dotted, as in the file; for a prompts file, the line
    got: str
    wanted: str
    do: str

    def __str__(self) -> str:
        return f"{self.key}: got {self.got}, wanted {self.wanted}: {self.do}"


class ConfigurationError(ValueError):
    """Everything that is wrong with one input, not just the first thing."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        many = f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{source}: {many}", *(f"  {fault}" for fault in self.faults)]))
