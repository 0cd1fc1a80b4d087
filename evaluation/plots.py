"""Draws a report: acceptance by position, speed by arm, paired differences. PNG files.

Knows summaries and matplotlib, without its global state. Knows nothing of limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.report import Report
from evaluation.summary import ArmSummary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"candidate": "#1b6ca8", "incumbent": "#c2571a", "ngram": "#5c8a3a", "none": "#777777"}


def draw(report: Report, folder: Path) -> list[Path]:
    """Write the plots into `folder`; returns their paths, those that have something to show."""
    told = {arm: summarise(report, arm) for arm in report.arms}
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "acceptance.png": _acceptance(told),
        "speed.png": _speed(told),
        "differences.png": _differences(report),
    }
    paths = []
    for name, figure in drawn.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=110, metadata={"Software": ""})
            paths.append(folder / name)
    return paths


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # half a second; and no pyplot, which is global

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _acceptance(told: dict[str, ArmSummary]) -> Figure | None:
    drafting = {arm: s for arm, s in told.items() if any(s.hazards)}
    if not drafting:
        return None
    figure, axes = _axes(
        "Kept by the target, of the tokens it judged", "draft position", "accepted / judged"
    )
    for shift, (arm, summary) in enumerate(drafting.items()):
        known = [(n, i) for n, i in enumerate(summary.hazards, start=1) if i is not None]
        axes.errorbar(
            [n + 0.06 * (shift - 1) for n, _ in known],
            [i.estimate for _, i in known],
            yerr=np.array([[i.estimate - i.low, i.high - i.estimate] for _, i in known]).T,
            label=arm,
            color=COLORS.get(arm),
            marker="o",
            capsize=3,
        )
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, max(len(s.hazards) for s in drafting.values()) + 1))
    axes.legend(frameon=False)
    return figure


def _speed(told: dict[str, ArmSummary]) -> Figure | None:
    timed = {arm: s for arm, s in told.items() if s.tokens_per_second is not None}
    if not timed:
        return None
    figure, axes = _axes("Speed, one request at a time", "", "tokens per second")
    for place, (arm, summary) in enumerate(timed.items()):
        assert summary.tokens_per_second is not None
        axes.bar(place, summary.tokens_per_second, color=COLORS.get(arm), width=0.6)
        ratio = summary.speedup
        if ratio is not None and arm != "none":
            note = f"{ratio.estimate:.2f}x\n{ratio.low:.2f} to {ratio.high:.2f}"
            axes.annotate(
                note, (place, summary.tokens_per_second), ha="center", va="bottom", fontsize=8
            )
    axes.set_xticks(range(len(timed)), [f"{arm}" for arm in timed])
    axes.margins(y=0.2)
    return figure


def _differences(report: Report) -> Figure | None:
    """Acceptance of the candidate less the incumbent's, prompt by prompt."""
    if not {"candidate", "incumbent"} <= set(report.arms):
        return None
    theirs = {r.prompt: r.counts.acceptance for r in report.of("incumbent")}
    differences = sorted(
        ours - other
        for request in report.of("candidate")
        if (ours := request.counts.acceptance) is not None
        and (other := theirs.get(request.prompt)) is not None
    )
    if not differences:
        return None
    figure, axes = _axes(
        "Candidate less incumbent, prompt by prompt", "prompts, sorted", "difference in acceptance"
    )
    colors = [COLORS["candidate"] if d >= 0 else COLORS["incumbent"] for d in differences]
    axes.bar(range(len(differences)), differences, color=colors, width=1.0)
    axes.axhline(0, color="black", linewidth=0.8)
    return figure
