"""How plots look: the colors of arms, axes, error bars. matplotlib without its global state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from speculation.records import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"candidate": "#1b6ca8", "incumbent": "#c2571a", "ngram": "#5c8a3a", "none": "#777777"}
NAMES = {"candidate": "new draft", "incumbent": "serving draft", "ngram": "n-gram", "none": "plain"}


def axes_of(title: str, x: str, y: str, *, height: float = 3.8) -> tuple[Figure, Axes]:
    """An empty plot, in inches 6.4 wide."""
    from matplotlib.figure import Figure  # half a second; and no pyplot, which is global

    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#00000014")
    axes.set_axisbelow(True)
    return figure, axes


def reach(intervals: Sequence[Interval]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[2, n]: how far each interval reaches below and above its estimate."""
    return np.array([[i.estimate - i.low, i.high - i.estimate] for i in intervals]).T
