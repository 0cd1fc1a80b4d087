"""A pairing's pairs and releases as a graph: what was made from what, and what served after what.

Drawn as SVG by hand: the registry needs no drawing library for boxes and arrows, and MLflow shows
it as an image. One column a release, the newest on the left; in them the pairs by their versions,
the newest on top, as MLflow lists them. A full arrow goes from a draft to the one that started
from it, a dashed one from a champion to the one that took its place. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from registry.versions import CANDIDATE, CHAMPION, PREVIOUS, PairingState, PairVersion

PAIRS_DRAWN = 12  # the newest, and whoever carries an alias
RELEASES_DRAWN = 4  # what MLflow's page is wide enough for; it cuts off what is wider
WIDTH, HEIGHT = 168, 40  # of a box, in pixels
GAP, ROW_GAP, MARGIN = 38, 20, 14
LETTER = 0.58  # of a font's size: how wide a bold letter is on average
COLORS = {  # border and filling
    "champion": ("#1a7f37", "#dafbe1"),
    "passed": ("#0969da", "#ddf4ff"),
    "rolled back": ("#cf222e", "#ffebe9"),
    "not passed": ("#8c959f", "#f6f8fa"),
    "release": ("#57606a", "#ffffff"),
}
LEGEND = (
    "full arrow: the draft started from that one's",
    "dashed: took that one's place as champion",
)
LABELS = {CHAMPION: "champion", CANDIDATE: "candidate", PREVIOUS: "previous"}


def drawn(state: PairingState) -> list[PairVersion]:
    """The pairs that are shown, oldest first."""
    newest = sorted(state.pairs, key=lambda pair: (not pair.aliases, -pair.version))
    return sorted(newest[:PAIRS_DRAWN], key=lambda pair: pair.version)


def edges(pairs: list[PairVersion]) -> Iterator[tuple[int, int, str]]:
    """(from version, to version, "parent" or "replaced") between the pairs that are given.

    A pair that was registered several times, measured anew, is its last version before the child.
    """
    versions = {pair.version for pair in pairs}
    for pair in pairs:
        older = [p.version for p in pairs if p.pair_id == pair.parent and p.version < pair.version]
        if pair.parent and older:
            yield max(older), pair.version, "parent"
        if pair.replaced in versions and pair.replaced is not None:
            yield pair.replaced, pair.version, "replaced"


def svg(state: PairingState) -> str:
    """The graph as an SVG document."""
    numbers = {release.digest: release.version for release in state.releases}
    pairs = drawn(state)
    used = {pair.release for pair in pairs} | set(sorted(numbers, key=lambda d: numbers[d])[-1:])
    columns = sorted(used, key=lambda digest: -numbers.get(digest, 0))[:RELEASES_DRAWN]
    pairs = [pair for pair in pairs if pair.release in columns]
    rows = {pair.version: row for row, pair in enumerate(reversed(pairs), start=1)}
    places = {
        pair.version: (_left(columns.index(pair.release)), _top(rows[pair.version]))
        for pair in pairs
    }
    width, height = _left(len(columns)), _top(len(pairs) + 1) + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#57606a"/>'
        "</marker></defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, digest in enumerate(columns):
        oldest = max((places[p.version][1] for p in pairs if p.release == digest), default=None)
        if oldest is not None:
            middle = _left(index) + WIDTH / 2
            parts.append(_line(middle, _top(0) + HEIGHT, middle, oldest))
        known = numbers.get(digest)
        head = f"release {known}" if known else "release of another pairing"
        parts.append(_box(_left(index), _top(0), [head, digest[:12]], "release"))
    parts += [_box(*places[pair.version], _lines(pair), _kind(pair)) for pair in pairs]
    parts += [_arrow(places[start], places[end], kind) for start, end, kind in edges(pairs)]
    for number, line in enumerate(LEGEND):
        y = height - 20 + 14 * number
        parts.append(_text(MARGIN, y, line, size=11, color="#57606a"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _left(column: int) -> int:
    return GAP + column * (WIDTH + GAP)


def _top(row: int) -> int:
    return MARGIN + row * (HEIGHT + ROW_GAP)


def _kind(pair: PairVersion) -> str:
    if CHAMPION in pair.aliases:
        return "champion"
    if pair.rolled_back:
        return "rolled back"
    return "passed" if pair.passed else "not passed"


def _lines(pair: PairVersion) -> list[str]:
    names = [label for alias, label in LABELS.items() if alias in pair.aliases]
    left = pair.rolled_back and CHAMPION not in pair.aliases  # it may have been gone back to since
    standing = "rolled back" if left else ", ".join(names) or pair.verdict.lower()
    acceptance, speedup = pair.figure("acceptance"), pair.figure("speedup")
    figures = [f"acceptance {acceptance:.2f}"] if acceptance is not None else []
    figures += [f"{speedup:.2f}×"] if speedup is not None else []
    return [f"v{pair.version} {pair.draft_kind}, {standing}", "   ".join(figures)]


def _box(x: float, y: float, lines: list[str], kind: str) -> str:
    border, filling = COLORS[kind]
    parts = [
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{filling}" '
        f'stroke="{border}" stroke-width="{2.5 if kind == "champion" else 1.5}"/>'
    ]
    for number, line in enumerate(line for line in lines if line):
        bold = number == 0
        size = min(13 if bold else 12, int((WIDTH - 20) / (LETTER * len(line))))
        parts.append(_text(x + 10, y + 17 + 16 * number, line, size=size, bold=bold))
    return "".join(parts)


def _text(
    x: float, y: float, text: str, *, size: int, bold: bool = False, color: str = "#1f2328"
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}"{weight} xml:space="preserve">'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#d0d7de" stroke-width="6"/>'


def _arrow(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    """From the older box, below, to the newer: on their left for a parent, on their right for a
    champion that was replaced. A pair may replace a newer one, after a rollback."""
    left = kind == "parent"
    side, bow = (0, -1) if left else (WIDTH, 1)
    (x1, y1), (x2, y2) = start, end
    y1, y2 = y1 + HEIGHT * (0.35 if left else 0.5), y2 + HEIGHT * (0.65 if left else 0.5)
    if x1 == x2:
        out = bow * min(GAP - 6, 12 + abs(y1 - y2) / 14)
        x1 = x2 = x1 + side
        curve = f"M{x1} {y1}C{x1 + out} {y1} {x2 + out} {y2} {x2} {y2}"
    else:  # between columns: out of the near side, into the other's near side
        forth = x2 > x1
        x1, x2 = (x1 + WIDTH, x2) if forth else (x1, x2 + WIDTH)
        out = GAP * 0.9 * (1 if forth else -1)
        curve = f"M{x1} {y1}C{x1 + out} {y1} {x2 - out} {y2} {x2} {y2}"
    dash = "" if left else ' stroke-dasharray="5 4"'
    return (
        f'<path d="{curve}" fill="none" stroke="#57606a" stroke-width="1.5"{dash} '
        'marker-end="url(#tip)"/>'
    )
