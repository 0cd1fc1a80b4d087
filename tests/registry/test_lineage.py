from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from registry.lineage import LETTER, PAIRS_DRAWN, WIDTH, drawn, edges, svg
from registry.story import pairing_story
from registry.versions import PairingState, PairVersion, ReleaseVersion


def pair(version: int, *, parent: int = 0, replaced: int = 0, **fields: object) -> PairVersion:
    tags = {"acceptance": "0.61", "speed-up": "1.52"}
    tags |= {"paceline.parent": f"p-{parent}"} if parent else {}
    tags |= {"paceline.replaced": str(replaced)} if replaced else {}
    plain = PairVersion(
        pairing="docstrings",
        version=version,
        pair_id=f"p-{version}",
        release="a" * 64,
        draft_kind="head",
        verdict="PASS",
        aliases=(),
        tags=tags,
        model_id="",
        run_id="",
        registered=0.0,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def state(*pairs: PairVersion) -> PairingState:
    releases = [
        ReleaseVersion("docstrings", n, d * 64, "/t", "", 0.0) for n, d in ((2, "b"), (1, "a"))
    ]
    return PairingState(
        "docstrings", tuple(releases), tuple(sorted(pairs, key=lambda p: -p.version))
    )


def test_an_edge_is_drawn_from_a_parent_and_from_whom_a_champion_replaced() -> None:
    pairs = [pair(1), pair(2, parent=1), pair(3, parent=1, replaced=2), pair(4, parent=99)]
    assert list(edges(pairs)) == [(1, 2, "parent"), (1, 3, "parent"), (2, 3, "replaced")]


def test_a_parent_that_was_measured_twice_is_its_last_version_before_the_child() -> None:
    twice = [pair(1), pair(2, pair_id="p-1"), pair(3, parent=1), pair(4, pair_id="p-1")]
    assert list(edges(twice)) == [(2, 3, "parent")]


def test_the_picture_is_an_image_with_every_release_and_pair() -> None:
    champion = pair(3, parent=1, replaced=1, aliases=("champion",), release="b" * 64)
    bad = pair(2, verdict="FAIL", draft_kind='<script>alert("x")</script>')
    document = svg(state(pair(1), bad, champion))
    root = ElementTree.fromstring(document)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"release 1", "release 2", "v1 head, pass", "v3 head, champion"} <= set(texts)
    assert 'v2 <script>alert("x")</script>, fail' in texts  # as text, and as nothing else
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    paths = root.findall("{http://www.w3.org/2000/svg}path")
    assert len(paths) == 2
    width = float(root.attrib["width"])
    boxes = root.findall("{http://www.w3.org/2000/svg}rect")
    assert all(float(box.get("x", 0)) + float(box.attrib["width"]) <= width for box in boxes)


def test_of_thousands_of_pairs_the_newest_and_the_aliased_are_drawn() -> None:
    pairs = [pair(version) for version in range(2, 3000)]
    shown = drawn(state(pair(1, aliases=("previous",)), *pairs))
    assert len(shown) == PAIRS_DRAWN
    assert (shown[0].version, shown[-1].version) == (1, 2999)


def test_a_pairing_without_pairs_is_a_picture_too() -> None:
    ElementTree.fromstring(svg(state()))
    ElementTree.fromstring(svg(PairingState("docstrings", (), ())))


def test_the_longest_words_stay_in_their_box() -> None:
    long = pair(1234, draft_kind="ngram", verdict="INCONCLUSIVE")
    root = ElementTree.fromstring(svg(state(long)))
    (text,) = (t for t in root.iter("{http://www.w3.org/2000/svg}text") if "v1234" in str(t.text))
    assert float(text.attrib["font-size"]) * LETTER * len(str(text.text)) <= WIDTH - 20


def test_a_champion_that_was_rolled_back_once_is_drawn_as_champion() -> None:
    again = pair(1, aliases=("champion",), draft_kind="ngram")
    again = replace(again, tags={**again.tags, "paceline.rolled_back": "by hand"})
    assert "v1 ngram, champion<" in svg(state(again))
    page = pairing_story("docstrings", [again])
    assert "rolled back" not in page
