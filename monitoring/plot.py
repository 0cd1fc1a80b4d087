"""Acceptance over time as a picture, with what happened marked. matplotlib is loaded when drawing.

Knows the entries of a series; knows nothing of how they came about. Drawn without pyplot, so
nothing global is touched and no display is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.series import Entry, Mark, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIR_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00")  # Okabe and Ito
MARK_STYLES = {  # told apart without colour too
    "release": ("#6a3d9a", "-"),
    "promotion": ("#1b7837", "--"),
    "swap": ("#08519c", "-."),
    "alarm": ("#b2182b", ":"),
}
INTERRUPTED = 10  # a line is broken where a gap is so many times the usual one


def plot_acceptance(entries: Sequence[Entry], out: Path, *, title: str = "Acceptance") -> Path:
    """Draw alpha-hat with its interval and tokens per second, a colour a pair; a PNG at `out`.

    Time is in minutes since the first entry, seconds where everything happened within three
    minutes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [entry for entry in entries if isinstance(entry, Point)]
    marks = [entry for entry in entries if isinstance(entry, Mark)]
    times = [entry.at for entry in points] + [entry.at for entry in marks]
    begin, end = min(times, default=0.0), max(times, default=0.0)
    unit, per = ("minutes", 60.0) if end - begin > 180 else ("seconds", 1.0)

    figure = Figure(figsize=(10, 6.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.4))
    for number, key in enumerate(dict.fromkeys((p.pair, p.drafter) for p in points)):
        colour = PAIR_COLOURS[number % len(PAIR_COLOURS)]
        mine = [point for point in points if (point.pair, point.drafter) == key]
        _pair(upper, lower, mine, begin=begin, per=per, colour=colour)
    for axes in (upper, lower):
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    upper.set_ylim(0, 1)
    upper.set_ylabel("alpha-hat: accepted / judged")
    lower.set_ylim(bottom=0)
    lower.set_ylabel("tokens per second")
    lower.set_xlabel(f"{unit} since the first request or mark")
    span = max((end - begin) / per, 1.0)
    lower.set_xlim(-0.02 * span, 1.02 * span)
    if points:
        # One below the other: a wide legend would squeeze the axes, or be cut off.
        lower.legend(loc="upper left", bbox_to_anchor=(0, -0.42), ncols=1, frameon=False)
    else:
        upper.text(0.5, 0.5, "no requests yet", transform=upper.transAxes, ha="center")
    rows = _marks(figure, (upper, lower), marks, begin=begin, per=per)
    upper.set_title(title, loc="left", pad=10 + 13 * rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png")
    return out


def _pair(
    upper: Axes, lower: Axes, points: Sequence[Point], *, begin: float, per: float, colour: str
) -> None:
    label = f"{points[0].pair} ({points[0].drafter})"
    for part in _unbroken(points):
        judged = [point for point in part if point.acceptance is not None]
        at = [(point.at - begin) / per for point in judged]
        intervals = [point.acceptance for point in judged if point.acceptance is not None]
        upper.plot(at, [one.estimate for one in intervals], color=colour, marker=".", markersize=4)
        upper.fill_between(
            at,
            [one.low for one in intervals],
            [one.high for one in intervals],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        timed = [point for point in part if point.tokens_per_second is not None]
        lower.plot(
            [(point.at - begin) / per for point in timed],
            [point.tokens_per_second or 0.0 for point in timed],
            color=colour,
            label=label,
        )
        label = "_"  # one entry in the legend, however often the line is broken


def _unbroken(points: Sequence[Point]) -> list[list[Point]]:
    gaps = sorted(after.at - before.at for before, after in zip(points, points[1:], strict=False))
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    parts: list[list[Point]] = [[]]
    for point in points:
        if parts[-1] and point.at - parts[-1][-1].at > max(30.0, INTERRUPTED * usual):
            parts.append([])
        parts[-1].append(point)
    return parts


def _marks(
    figure: Figure, both: tuple[Axes, Axes], marks: Sequence[Mark], *, begin: float, per: float
) -> int:
    """Lines through both axes; labels above, in as many rows as keep them apart. The rows used."""
    upper = both[0]
    figure.draw_without_rendering()  # label widths are known only then
    ends: list[float] = []  # of each row, in pixels
    for mark in sorted(marks, key=lambda mark: mark.at):
        colour, line = MARK_STYLES.get(mark.what, ("#444444", "-"))
        x = (mark.at - begin) / per
        for axes in both:
            axes.axvline(x, color=colour, linestyle=line, linewidth=1.4)
        text = f"{mark.what} {mark.label}".strip()
        label = upper.annotate(
            text if len(text) <= 34 else text[:33] + "…",
            (x, 1.0),
            (0, 4),
            xycoords=upper.get_xaxis_transform(),
            textcoords="offset points",
            fontsize=8,
            color=colour,
            annotation_clip=False,
        )
        label.set_in_layout(False)  # it must not squeeze the axes; the title's distance makes room
        box = label.get_window_extent()
        if box.x1 > figure.bbox.x1 - 8:  # at the right edge it reads towards the left
            label.set_horizontalalignment("right")
            box = label.get_window_extent()
        row = next((n for n, at in enumerate(ends) if at < box.x0), len(ends))
        ends[row : row + 1] = [box.x1 + 8]
        label.set_position((0, 4 + 13 * row))
    return len(ends)
