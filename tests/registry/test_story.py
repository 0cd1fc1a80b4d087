from __future__ import annotations

from registry.markdown import amount, figure, flat, plain, table
from registry.story import pairing_story
from registry.versions import PairVersion


def test_text_of_others_cannot_become_a_link_a_tag_or_a_new_cell() -> None:
    hostile = "| a [x](javascript:alert(1)) <img src=x>\n\n# `b` **c**"
    assert plain(hostile) == (r"\| a \[x\](javascript:alert(1)) \<img src=x\> \# \`b\` \*\*c\*\*")
    assert table(["a"], [[plain(hostile)]]).count("\n") == 2


def test_figures_read_well() -> None:
    assert [figure(value) for value in (0.61234, 123.45, 80, None)] == ["0.612", "123.5", "80", "–"]
    assert [amount(n) for n in (240, 4_200, 134_515_008, 70 * 10**9)] == [
        "240",
        "4.2k",
        "134.5M",
        "70.0B",
    ]
    assert flat({"a": {"b": 1}, "c": 2}) == {"a.b": 1, "c": 2}


def test_a_pairing_of_thousands_of_pairs_still_fits_a_page() -> None:
    pairs = [
        PairVersion(
            pairing="docstrings",
            version=version,
            pair_id="p-0",
            release="f" * 64,
            draft_kind="head",
            verdict="PASS",
            aliases=("champion",) if version == 3_000 else (),
            tags={"paceline.rolled_back": "x" * 400},
            model_id="",
            run_id="",
            registered=0.0,
        )
        for version in range(3_000, 0, -1)
    ]
    page = pairing_story("docstrings", pairs)
    assert len(page) <= 90_000
    assert page.startswith("**Champion: [v3000]")
    header = next(line for line in page.splitlines() if line.startswith("| version"))
    columns = [column.strip().removesuffix("&ensp;") for column in header.strip("|").split("|")]
    assert columns.index("note") < columns.index("draft"), "MLflow cuts the right end off"
