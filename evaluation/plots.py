"""Draws a report: acceptance by position and by slice, speed by concurrency, paired differences.

PNG files, each only where there is something to show. Knows figures and matplotlib; no limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.drawing import COLORS, NAMES, axes_of, reach
from evaluation.plots_paired import acceptance_differences, rouge_differences
from evaluation.report import Report
from evaluation.rules_acceptance import accepted, counts
from evaluation.slicing import slices
from evaluation.summary import ALPHA, ArmSummary, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SLICES = 16  # more are no longer told apart


def draw(report: Report, folder: Path) -> list[Path]:
    """Write the plots into `folder`; returns their paths, those that have something to show."""
    told = {arm: summarise(report, arm) for arm in report.arms}
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "acceptance.png": _by_position(told),
        "slices.png": _by_slice(report),
        "speed.png": _by_concurrency(told),
        "rouge.png": rouge_differences(report),
        "differences.png": acceptance_differences(report),
    }
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=110, metadata={"Software": ""})
            paths.append(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)  # of an earlier run, of other arms
    return paths


def _by_position(told: dict[str, ArmSummary]) -> Figure | None:
    drafting = {arm: s for arm, s in told.items() if any(s.hazards)}
    if not drafting:
        return None
    figure, axes = axes_of(
        "Kept by the target, by place in the draft", "place in the draft", "accepted / judged"
    )
    for shift, (arm, summary) in enumerate(drafting.items()):
        known = [(n, i) for n, i in enumerate(summary.hazards, start=1) if i is not None]
        axes.errorbar(
            [n + 0.06 * (shift - 1) for n, _ in known],
            [i.estimate for _, i in known],
            yerr=reach([i for _, i in known]),
            label=NAMES.get(arm, arm),
            color=COLORS.get(arm),
            marker="o",
            capsize=3,
        )
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, max(len(s.hazards) for s in drafting.values()) + 1))
    figure.legend(frameon=False, loc="outside lower right", ncols=len(drafting))
    return figure


def _by_slice(report: Report) -> Figure | None:
    """The new draft beside the serving one on each slice, the whole at the top."""
    found = list(slices(report).items())[:MOST_SLICES]
    if not found:
        return None
    arms = [arm for arm in ("candidate", "incumbent") if arm in report.arms]
    rows = [("everything", None), *found]
    figure, axes = axes_of(
        "Kept by the target, by slice", "accepted / judged", "", height=1.4 + 0.36 * len(rows)
    )
    for shift, arm in enumerate(arms):
        known = [
            (place, interval)
            for place, (_, members) in enumerate(rows)
            if (interval := accepted(counts(report, arm, members), ALPHA)) is not None
        ]
        if not known:
            continue
        axes.errorbar(
            [i.estimate for _, i in known],
            [place + 0.2 * shift for place, _ in known],
            xerr=reach([i for _, i in known]),
            label=NAMES[arm],
            color=COLORS[arm],
            marker="o",
            linestyle="none",
            capsize=3,
        )
    names = [
        name if members is None else f"{name} ({len({p for p, _ in members})})"
        for name, members in rows
    ]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.grid(axis="x", color="#00000014")
    if len(arms) > 1:
        figure.legend(frameon=False, loc="outside lower right", ncols=2)
    return figure


def _by_concurrency(told: dict[str, ArmSummary]) -> Figure | None:
    """Times plain decoding at each number of requests at once; 1 is no gain."""
    timed = {
        arm: [(s.concurrency, s.speedup) for s in summary.speeds if s.speedup is not None]
        for arm, summary in told.items()
        if arm != "none"
    }
    timed = {arm: speeds for arm, speeds in timed.items() if speeds}
    if not timed:
        return None
    figure, axes = axes_of(
        "Speed, over decoding without a draft", "requests at once", "times as fast"
    )
    loads = sorted({at_once for speeds in timed.values() for at_once, _ in speeds})
    places = {at_once: place for place, at_once in enumerate(loads)}
    width = 0.24
    for shift, (arm, speeds) in enumerate(timed.items()):
        x = [places[at_once] + (shift - (len(timed) - 1) / 2) * width for at_once, _ in speeds]
        axes.errorbar(
            x,
            [i.estimate for _, i in speeds],
            yerr=reach([i for _, i in speeds]),
            label=NAMES.get(arm, arm),
            color=COLORS.get(arm),
            marker="o",
            linestyle="none",
            capsize=3,
        )
        for place, (_, interval) in zip(x, speeds, strict=True):
            axes.annotate(
                f" {interval.estimate:.2f}",
                (place, interval.estimate),
                ha="left",
                va="center",
                fontsize=8,
                color=COLORS.get(arm),
                xytext=(4, 0),
                textcoords="offset points",
            )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(loads)), [str(load) for load in loads])
    axes.set_xlim(-0.6, len(loads) - 0.4)
    axes.set_ylim(bottom=min(0.8, axes.get_ylim()[0]))
    axes.margins(y=0.15)
    figure.legend(frameon=False, loc="outside lower right", ncols=len(timed))
    return figure
