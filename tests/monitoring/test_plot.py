"""The picture: drawn from any series, labels apart, and without loading matplotlib before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitoring.plot import plot_acceptance
from monitoring.series import Entry, Mark, Point
from speculation.records import Interval

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def points(start: float, end: float, pair: str, estimate: float | None) -> list[Entry]:
    interval = None if estimate is None else Interval(estimate, estimate - 0.04, estimate + 0.04, 9)
    return [
        Point(
            start + 2 * n, pair, "head", "d" * 64, 4, 50, interval, None, None, (), None, 80.0 + n
        )
        for n in range(int((end - start) / 2))
    ]


STORY: list[Entry] = [
    Mark(1000.0, "release", "r1"),
    *points(1000, 1200, "p-0123456789abcdef", 0.62),
    Mark(1200.0, "release", "r2"),
    *points(1200, 1320, "p-0123456789abcdef", 0.31),
    Mark(1202.0, "alarm", "drift"),
    Mark(1318.0, "promotion", "version 2"),
    Mark(1320.0, "swap", "p-fedcba9876543210"),
    *points(1324, 1500, "p-fedcba9876543210", 0.58),
]


@pytest.mark.parametrize(
    "entries",
    [STORY, [], [Mark(1.0, "swap", "p-2")], points(0, 2, "p-1", 0.5), points(0, 60, "p-1", None)],
    ids=["story", "empty", "a mark alone", "one point", "nothing judged"],
)
def test_any_series_can_be_drawn(tmp_path: Path, entries: list[Entry]) -> None:
    out = plot_acceptance(entries, tmp_path / "deep" / "acceptance.png", title="docstrings")
    assert out.read_bytes().startswith(PNG)


def test_labels_of_marks_overlap_neither_each_other_nor_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *arguments: object, **keywords: object) -> None:
        drawn.append(self)
        save(self, *arguments, **keywords)  # type: ignore[arg-type]  # passed on as given

    monkeypatch.setattr(Figure, "savefig", keep)
    crowd = [Mark(1480.0 + 3 * n, "promotion", f"version {n} of a long name") for n in range(5)]
    plot_acceptance([*STORY, *crowd], tmp_path / "a.png")
    (figure,) = drawn
    upper = figure.axes[0]
    labels = [text for text in upper.texts if isinstance(text, Annotation)]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) == 10
    assert not [(a, b) for n, a in enumerate(boxes) for b in boxes[:n] if a.overlaps(b)]
    title = upper._left_title.get_window_extent()  # type: ignore[attr-defined]  # no public way
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y1 <= title.y0 for box in boxes)
    assert title.y1 <= figure.bbox.y1


def test_matplotlib_is_loaded_only_when_drawing() -> None:
    code = "import monitoring.plot, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
