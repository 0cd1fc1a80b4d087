"""How much of alpha each look at growing data may use, so that all looks together keep to it.

A group-sequential design: looks are planned beforehand, and what an estimate that moves like a
Brownian motion would wrongly cross at each of them is computed and held to a share of alpha (Lan
and DeMets, Discrete Sequential Boundaries for Clinical Trials, Biometrika 70, 1983). Knows looks
and levels; knows nothing of reports or rules. docs/decisions/0009 says why this and no other way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import integrate, optimize, stats

from evaluation.policy import Policy

# The share of alpha spent at a share t of the prompts is t**2 (Kim and DeMets, Design and Analysis
# of Group Sequential Tests Based on the Type I Error Spending Rate Function, Biometrika 74, 1987):
# a clear case ends at half of the budget, and the last look keeps three quarters of its level. The
# levels are also ones that a bootstrap of 5,000 can tell; O'Brien and Fleming's first is 0.0001.
POWER = 2.0
POINTS = 1_001  # of the grid integrated over: critical values are then right to 0.0001
FAR = 8.0  # standard deviations; beyond it lies no chance worth counting


@dataclass(frozen=True, slots=True)
class Stratum:
    """So many of the prompts are alike in all that slices go by."""

    task: str
    language: str
    adapter: str
    context: int  # the bucket of its length in tokens, 0 where that is not known
    prompts: int


@dataclass(frozen=True, slots=True)
class Looks:
    """Which look at growing data this is, of those that were planned before the first one."""

    number: int  # from 1
    planned: tuple[int, ...]  # prompts at each look
    strata: tuple[Stratum, ...] = ()  # of all prompts that the looks are to reach; (): not known

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.planned), self.planned, strict=False))
        if not (rising and 1 <= self.number <= len(self.planned)):
            raise ValueError(
                f"got look {self.number} of {self.planned}: wanted prompts that rise from look to "
                "look, and one of these looks"
            )

    @property
    def last(self) -> bool:
        return self.number == len(self.planned)

    def alpha(self, total: float) -> float:
        """The level of a bound at this look, where all looks together may err with `total`."""
        shares = tuple(prompts / self.planned[-1] for prompts in self.planned)
        spent = tuple(total * share**POWER for share in shares)
        return float(stats.norm.sf(critical_values(shares, spent)[self.number - 1]))


def at_look(policy: Policy, looks: Looks | None) -> Policy:
    """The policy as it judges at that look; itself where there is only one."""
    return policy if looks is None else replace(policy, alpha=looks.alpha(policy.alpha))


def planned(prompts: int, looks: int, *, least: int) -> tuple[int, ...]:
    """Prompts at each of up to `looks` evenly spread looks, the first of `least` at the least."""
    fewer = max(1, min(looks, prompts // max(1, least)))
    return tuple(prompts * look // fewer for look in range(1, fewer + 1))


@lru_cache(maxsize=64)
def critical_values(shares: tuple[float, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    """One-sided bounds of a standard normal statistic at each look.

    `shares` of the information at each look, rising to 1; `spent`: the chance of having crossed a
    bound by then that is to result. By recursive integration (Armitage, McPherson and Rowe,
    Repeated Significance Tests on Accumulating Data, JRSS A 132, 1969): what has not crossed yet
    moves on by a normal step.
    """
    values: list[float] = []
    grid = density = np.empty(0)
    before = 0.0
    for look, (share, total) in enumerate(zip(shares, spent, strict=True)):
        step = math.sqrt(share - (shares[look - 1] if look else 0.0))

        def crossing(
            bound: float,
            grid: np.ndarray = grid,
            density: np.ndarray = density,
            step: float = step,
        ) -> float:
            if not len(grid):
                return float(stats.norm.sf(bound / step))
            beyond = stats.norm.sf((bound - grid) / step)
            return float(integrate.simpson(density * beyond, x=grid))

        wide = FAR * math.sqrt(share)
        bound = optimize.brentq(
            lambda b, due=total - before, crossing=crossing: crossing(b) - due, -wide, wide
        )
        values.append(bound / math.sqrt(share))
        reached = np.linspace(-wide, bound, POINTS)
        density, grid = _moved(grid, density, reached, step), reached
        before = total
    return tuple(values)


def _moved(grid: np.ndarray, density: np.ndarray, reached: np.ndarray, step: float) -> np.ndarray:
    """The density at the places `reached` after one more normal step."""
    if not len(grid):
        return np.asarray(stats.norm.pdf(reached / step) / step)
    moves = stats.norm.pdf((reached[:, None] - grid) / step) / step
    return np.asarray(integrate.simpson(moves * density, x=grid, axis=1))


def told(looks: Looks | None, total: float) -> str:
    """For people: which look this is, and at which level it is judged."""
    if looks is None or looks.planned[1:] == ():
        return ""
    return (
        f"look {looks.number} of at most {len(looks.planned)}, each bound at "
        f"{looks.alpha(total):.4f}, so that all looks together err no more often than {total:g}"
    )
