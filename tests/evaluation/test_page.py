from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli.measured import figure_lines, figures
from evaluation.gate import judge
from evaluation.markdown import markdown
from evaluation.page import page, write
from evaluation.parity import Parity
from evaluation.plan import plan
from evaluation.plots import draw
from evaluation.plots_paired import rouge_differences
from evaluation.policy import Policy, PolicyError
from evaluation.report import Report, RequestFigures
from evaluation.shown import UNKNOWN, Table, shown
from evaluation.simulation import Arm, report
from evaluation.summary import rows, speed_rows, summarise
from evaluation.telling import next_steps, sentence
from evaluation.texts import text_figures
from speculation.records import Phase
from tests.evaluation.reshaped import at_once_too, changed, drawn_too, with_references
from tests.evaluation.test_gate import ARMS, phases

POLICY = Policy(prompts=64)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "line", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_runs_nothing_and_escapes_what_it_is_told(
    tmp_path: Path,
) -> None:
    measured = report(ARMS, seed=1)
    hostile = "<script>alert(1)</script>"
    measured = replace(
        measured, conditions=replace(measured.conditions, engine=hostile, machine='"><img src=x>')
    )
    html = page(measured, judge(POLICY, measured), draw(measured, tmp_path))
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert not any(tag == "script" for tag, _ in tags.seen)
    assert hostile not in html
    sources = [attributes["src"] or "" for tag, attributes in tags.seen if tag == "img"]
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not any("href" in attributes for _, attributes in tags.seen)


@pytest.mark.parametrize("candidate", [Arm(0.6), Arm(0.2), Arm(0.36)])
def test_the_page_opens_with_the_verdict(candidate: Arm) -> None:
    measured = report({**ARMS, "candidate": candidate}, seed=1)
    verdict = judge(POLICY, measured)
    html = page(measured, verdict)
    assert html.index(f'<b class="{verdict.phase}">') < html.index("<table>")


def test_plots_are_drawn_of_what_was_measured_and_only_of_that(tmp_path: Path) -> None:
    sliced = at_once_too(report(ARMS, seed=1, tasks=("a", "b")), 8, {"candidate": 2.0})
    whole = draw(sliced, tmp_path)
    names = ["acceptance.png", "slices.png", "speed.png", "rouge.png", "differences.png"]
    assert [path.name for path in whole] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in whole)
    first = draw(report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1), tmp_path)
    assert [path.name for path in first] == ["acceptance.png", "speed.png", "rouge.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in first)


def test_drawn_texts_are_plotted_less_plain_decodings_to_itself_greedy_ones_less_1() -> None:
    figure = rouge_differences(drawn_too(report(ARMS, seed=1), 0.8, 0.55, 0.6))
    assert figure is not None
    heights = [bar.get_height() for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([-0.05] * 64 + [0.0] * 64)


def test_both_pages_open_with_one_sentence_say_each_rule_and_what_to_do(tmp_path: Path) -> None:
    measured = with_references(report({**ARMS, "candidate": Arm(0.38)}, seed=1), 0.002)
    verdict = judge(POLICY, measured)
    assert verdict.phase is Phase.INCONCLUSIVE
    html = write(measured, verdict, tmp_path).read_text()
    text = (tmp_path / "report.md").read_text()
    said = sentence(verdict)
    assert text.startswith(f"# INCONCLUSIVE\n\n**{said}**\n")
    assert html.index(said) < html.index("What to do next") < html.index("Why")
    for finding in verdict.findings:
        assert finding.rule.replace("_", " ") in html
        assert finding.rule.replace("_", " ") in text
        if finding.interval is not None and finding.threshold is not None:
            shown = f"{finding.interval.estimate:.3f}", f"{finding.threshold:g}"
            assert all(figure in html and figure in text for figure in shown)
    for name in ("acceptance", "speed", "rouge", "differences"):
        assert f"![{name}]({name}.png)" in text
        assert (tmp_path / f"{name}.png").exists()
    assert measured.digest in html
    assert measured.digest in text


def test_nothing_in_markdown_is_more_than_text() -> None:
    measured = report(ARMS, seed=1)
    engine = "<script>x</script> | [a](b) *c*"
    measured = replace(measured, conditions=replace(measured.conditions, engine=engine))
    text = markdown(measured, judge(POLICY, measured))
    assert r"\<script\>x\</script\> \| \[a\](b) \*c\*" in text


@pytest.mark.parametrize(
    ("arms", "speed", "said", "step"),
    [
        (ARMS, 1.0, "may serve: answers stay what they are and come", "paceline promote"),
        ({**ARMS, "candidate": Arm(0.2)}, 1.0, "the draft that serves now is better", "Keep what"),
        (ARMS, 3.0, "it makes answers slower one request at a time", "share of prefill"),
        ({**ARMS, "candidate": Arm(0.38)}, 1.0, "more prompts would do", "more prompts, "),
    ],
)
def test_the_sentence_says_it_for_people_and_the_first_step_is_the_useful_one(
    arms: dict[str, Arm], speed: float, said: str, step: str
) -> None:
    verdict = judge(POLICY, report(arms, seed=1, speed=speed))
    assert said in sentence(verdict)
    assert step in next_steps(verdict)[0]


def test_the_table_has_a_row_an_arm_and_agrees_with_the_counts() -> None:
    measured = report(ARMS, seed=1)
    table = {row["arm"]: row for row in rows(measured)}
    assert list(table) == ["candidate", "incumbent", "ngram", "none"]
    row = table["candidate"]
    assert row["alpha_hat"] == pytest.approx(row["accepted"] / row["judged"])
    rounds = sum(request.counts.rounds for request in measured.of("candidate"))
    assert row["acceptance_length"] == pytest.approx(1 + row["accepted"] / rounds)
    assert row["speedup"] == pytest.approx(
        row["tokens_per_second"] / row["plain_tokens_per_second"]
    )
    assert row["requests"] == 64
    assert table["none"]["alpha_hat"] is None
    assert table["none"]["exact_match"] is None  # it is what the others are compared with


def test_hazards_are_pooled_per_position_with_intervals_around_the_truth() -> None:
    told = summarise(report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1), "candidate")
    first = told.hazards[0]
    assert first is not None
    assert first.low < 0.6 < first.high
    assert told.correlation == pytest.approx(0.1, abs=0.05)


def cells(measured: Report, heading: str) -> list[dict[str, str]]:
    """A table of the page, a dict a row."""
    tables = {told.heading: told for told in shown(measured, judge(POLICY, measured)).tables}
    table: Table = tables[heading]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_rouge_l_to_plain_stands_beside_that_of_plain_to_itself_at_each_temperature() -> None:
    measured = drawn_too(report(ARMS, seed=1), 0.8, 0.55, 0.6)
    of = {(row["arm"], row["temperature"]): row for row in cells(measured, "Texts")}
    drawn, greedy = of["candidate", "0.8"], of["candidate", "0"]
    assert drawn["ROUGE-L to plain"] == "0.550\n0.550 to 0.550"
    assert drawn["plain to itself"] == "0.600\n0.600 to 0.600"
    assert (drawn["equal to plain's"], greedy["equal to plain's"]) == ("0 of 64", "64 of 64")
    assert greedy["plain to itself"].startswith("1.000\n")
    plain = of["none", UNKNOWN]
    assert plain["ROUGE-L to plain"] == plain["plain to itself"] == UNKNOWN
    lines = figure_lines(figures(measured))
    assert any("0.550 (0.550 to 0.550), of plain decoding to itself 0.600" in x for x in lines)
    # All temperatures together, each as much as another, for both.
    told = next(row for row in rows(measured) if row["arm"] == "candidate")
    assert told["rouge_l"] == pytest.approx((1 + 0.55) / 2)
    assert told["rouge_l_baseline"] == pytest.approx((1 + 0.6) / 2)
    assert "plain to itself" in lines[0]


def test_rouge_l_to_plain_has_an_interval_by_prompt() -> None:
    measured = changed(
        report(ARMS, seed=1),
        "candidate",
        lambda r: replace(r, parity=Parity(False, 3, 0.1, 0.8 + 0.003 * int(r.prompt[1:]))),
    )
    told = text_figures(measured, "candidate", 0.0)
    assert told is not None
    assert told.rouge_l is not None
    assert told.rouge_l.n == 64
    assert told.rouge_l.low < 0.8 + 0.003 * 31.5 < told.rouge_l.high
    assert told.rouge_l_baseline is None  # plain decoding was not held against itself


def test_where_texts_part_is_told_with_what_rounding_does_not_explain() -> None:
    def part(request: RequestFigures) -> RequestFigures:
        place = int(request.prompt[1:])
        gaps = {0: 0.2, 1: 0.7, 2: None}
        equal = place not in gaps
        parity = Parity(equal, None if equal else 10 + place * 10, gaps.get(place), 0.9)
        return replace(request, parity=parity)

    measured = changed(report(ARMS, seed=1), "candidate", part)
    (row,) = cells(measured, "Where texts part from plain's")
    found = ("3", "10", "20", "0.70", "1")
    assert tuple(row.values()) == ("candidate", "0", *found)
    (line,) = (x for x in figure_lines(figures(measured)) if "part at token" in x)
    assert "part at token 10 at the earliest, 20 in the median" in line
    assert "by 0.70 nats at most; 1 by a token that was none of plain's likeliest" in line


def test_acceptance_by_place_is_in_figures_with_intervals_on_pages_and_terminals() -> None:
    measured = report(ARMS, seed=1)
    hazards = summarise(measured, "candidate").hazards
    row = cells(measured, "Acceptance by place in the draft")[0]
    (line,) = (x for x in figure_lines(figures(measured)) if x.startswith("candidate: acceptance "))
    for place, hazard in enumerate(hazards, start=1):
        assert hazard is not None
        assert row[str(place)] == f"{hazard.estimate:.3f}\n{hazard.low:.3f} to {hazard.high:.3f}"
        assert f"{hazard.estimate:.2f} ({hazard.low:.2f} to {hazard.high:.2f})" in line


def test_decoding_as_predicted_stands_beside_what_was_held_out() -> None:
    measured = report(ARMS, seed=1)
    of = {row["arm"]: row for row in cells(measured, "Decoding alone, prefill aside")}
    told = next(row for row in speed_rows(measured) if row["arm"] == "candidate")
    assert of["candidate"]["times plain, predicted"] == f"{told['predicted_decode_speedup']:.2f}"
    assert of["candidate"]["held out"] == f"{told['held_out_decode_speedup']:.2f}"
    assert "none" not in of


@pytest.mark.slow
def test_the_slowest_hundredth_is_a_column_where_it_is_known() -> None:
    few, many = report(ARMS, seed=1), report(ARMS, seed=1, prompts=4_008)
    assert "99 % within, s" not in cells(few, "Speed, whole requests")[0]
    told = summarise(many, "candidate").speeds[0].latency["p99"]
    row = cells(many, "Speed, whole requests")[0]
    assert row["99 % within, s"] == f"{told.seconds:.3f}"


def test_an_excused_rule_is_marked_so_in_both_forms() -> None:
    measured = report(ARMS, seed=1)
    verdict = judge(POLICY, measured)
    first = replace(verdict.findings[0], phase=Phase.FAIL, excused=True)
    verdict = replace(verdict, findings=(first, *verdict.findings[1:]))
    assert page(measured, verdict).count("FAIL (excused)") == 1
    assert markdown(measured, verdict).count("**FAIL** (excused)") == 1


def test_an_arm_that_was_not_measured_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="arm 'incumbent'.*candidate, ngram, none"):
        summarise(report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1), "incumbent")


def test_what_the_plan_promises_the_gate_keeps() -> None:
    old = Arm(0.5)
    expected = plan(POLICY, acceptance=old.acceptance(4))
    gain = expected.sure_gain
    assert 0.02 < gain < 0.15
    passed = phases(Arm(0.5 + gain), old, 60).count(Phase.PASS)
    assert passed >= 45  # 54 expected; below 46 with a chance of 1 %


def test_an_impossible_policy_is_refused_by_key() -> None:
    assert Policy(prompts=100).speed_prompts == 25
    with pytest.raises(PolicyError, match="alpha = 0.7, wanted above 0, below 0.5"):
        Policy(alpha=0.7)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        *((f"{name}_margin", 0.5) for name in ("acceptance", "slice", "rouge_l")),
        *(("error_limit", 0.5), ("parity_gap", 5.0), ("drawn_margin", 0.2)),
    ],
)
def test_no_limit_can_be_moved_so_far_that_its_rule_is_off(name: str, bound: float) -> None:
    assert getattr(Policy(**{name: bound}), name) == bound  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=f"{name} = {bound + 0.01}, wanted 0 to {bound}"):
        Policy(**{name: bound + 0.01})  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="which none is above"):
        Policy(acceptance_floor=1.0)
