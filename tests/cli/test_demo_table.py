"""The demo's table says what the reports say, under the keys that the issue names."""

from __future__ import annotations

from typing import Any

from cli.demo_table import demo_rows, demo_text

KEYS = {
    *("pair", "alpha_hat", "acceptance_length", "forwards_per_request", "tokens_per_second"),
    *("plain_tokens_per_second", "speedup", "rouge_l", "exact_match", "requests"),
}


def row(arm: str, alpha_hat: float | None) -> dict[str, Any]:
    return {
        "arm": arm,
        **{key: 1.0 for key in KEYS - {"pair", "requests"}},
        "pair": f"p-{arm}",
        "alpha_hat": alpha_hat,
        "requests": 64,
    }


FIRST = [row("candidate", 0.6), row("ngram", 0.1), row("none", None)]
SECOND = [row("candidate", 0.58), row("incumbent", 0.3), row("ngram", 0.1), row("none", None)]


def test_the_three_lines_are_old_on_old_old_on_new_new_on_new() -> None:
    rows = demo_rows(FIRST, SECOND)
    assert [line["alpha_hat"] for line in rows] == [0.6, 0.3, 0.58]
    assert rows[0]["pair"].startswith("old draft on old")
    assert all(set(line) == KEYS for line in rows)


def test_without_an_incumbent_its_line_is_left_out() -> None:
    assert len(demo_rows(FIRST, [row("candidate", 0.5)])) == 2
    assert len(demo_rows(FIRST, None)) == 1


def test_what_was_not_measured_is_a_dash_for_people() -> None:
    told = demo_text(demo_rows([row("candidate", None)], None))
    assert " - " in told[1] + " "
    assert len(told) == 2
