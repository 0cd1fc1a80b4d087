"""What a long run leaves behind: the slope of memory and handles over what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Look:
    done: int  # requests, or swaps
    memory_bytes: int  # resident
    handles: int


@dataclass(frozen=True, slots=True)
class Slope:
    """By least squares, for each that was done."""

    memory_bytes: float
    handles: float
    looks: Sequence[Look]

    def __str__(self) -> str:
        first, last = self.looks[0], self.looks[-1]
        return (
            f"{first.memory_bytes / 2**20:.1f} MiB after {first.done}, "
            f"{last.memory_bytes / 2**20:.1f} MiB after {last.done}; a thousand cost "
            f"{self.memory_bytes * 1000 / 2**20:+.3f} MiB and {self.handles * 1000:+.2f} handles "
            f"(least squares over {len(self.looks)} looks)"
        )


def slope(looks: Sequence[Look], *, after: int) -> Slope:
    """Of the looks from `after` on; before that caches and pools fill."""
    late = [look for look in looks if look.done >= after]
    done = [look.done for look in late]
    memory = np.polyfit(done, [look.memory_bytes for look in late], 1)[0]
    handles = np.polyfit(done, [look.handles for look in late], 1)[0]
    return Slope(float(memory), float(handles), late)
