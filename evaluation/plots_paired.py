"""Draws differences prompt by prompt, of acceptance and of ROUGE-L: a mean hides what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluation.drawing import COLORS, axes_of
from evaluation.report import Report
from evaluation.texts import plain_again

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORSE = "#c62828"


def acceptance_differences(report: Report) -> Figure | None:
    """The candidate's acceptance less the incumbent's."""
    if not {"candidate", "incumbent"} <= set(report.arms):
        return None
    theirs = {(r.prompt, r.temperature): r.counts.acceptance for r in report.of("incumbent")}
    differences = [
        ours - other
        for request in report.of("candidate")
        if (ours := request.counts.acceptance) is not None
        and (other := theirs.get((request.prompt, request.temperature))) is not None
    ]
    return _sorted_bars(
        differences,
        "New draft less serving draft, prompt by prompt",
        "difference in acceptance",
    )


def rouge_differences(report: Report) -> Figure | None:
    """ROUGE-L to the references less plain decoding's; where there are none, ROUGE-L to plain
    decoding's text: of greedy texts less 1, which is what is not the same, of drawn ones less plain
    decoding's to itself on the prompt, as no text that is drawn again is the same."""
    plain = {(r.prompt, r.temperature): r.rouge_l_reference for r in report.of("none")}
    ours = report.of("candidate")
    referenced = [
        r.rouge_l_reference - other
        for r in ours
        if r.rouge_l_reference is not None
        and (other := plain.get((r.prompt, r.temperature))) is not None
    ]
    if referenced:
        return _sorted_bars(
            referenced,
            "ROUGE-L to the references, less plain decoding's",
            "difference in ROUGE-L",
        )
    itself = {
        (r.prompt, temperature): 1.0 if temperature == 0 else r.parity.rouge_l
        for temperature in report.conditions.temperatures
        for r in (ours if temperature == 0 else plain_again(report, temperature))
        if r.parity is not None
    }
    return _sorted_bars(
        [
            r.parity.rouge_l - same
            for r in ours
            if r.parity is not None and (same := itself.get((r.prompt, r.temperature))) is not None
        ],
        "ROUGE-L to plain decoding's text, less plain decoding's to itself"
        if any(report.conditions.temperatures)
        else "ROUGE-L to plain decoding's text, less that of the same text",
        "difference in ROUGE-L",
    )


def _sorted_bars(differences: list[float], title: str, y: str) -> Figure | None:
    if not differences:
        return None
    ordered = sorted(differences)
    mean = sum(ordered) / len(ordered)
    figure, axes = axes_of(title, f"{len(ordered)} answers, sorted", y)
    colors = [COLORS["candidate"] if d >= 0 else WORSE for d in ordered]
    axes.bar(range(len(ordered)), ordered, color=colors, width=1.0)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.axhline(mean, color="black", linewidth=0.8, linestyle="--")
    axes.set_xticks([])
    axes.annotate(
        f"mean {mean:+.3f}",
        (0, mean),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=8,
    )
    if not any(ordered):  # all the same: a plot of nothing still says so
        axes.set_ylim(-0.1, 0.1)
    return figure
