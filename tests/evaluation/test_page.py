from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evaluation.gate import judge
from evaluation.markdown import markdown
from evaluation.page import page, write
from evaluation.plan import plan
from evaluation.plots import draw
from evaluation.policy import Policy, PolicyError
from evaluation.simulation import Arm, report
from evaluation.summary import rows, summarise
from evaluation.telling import next_steps, sentence
from speculation.records import Phase
from tests.evaluation.reshaped import at_once_too, with_references
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
    assert table["none"]["exact_match"] == 1.0


def test_hazards_are_pooled_per_position_with_intervals_around_the_truth() -> None:
    told = summarise(report({"candidate": Arm(0.6), "ngram": Arm(0.1)}, seed=1), "candidate")
    first = told.hazards[0]
    assert first is not None
    assert first.low < 0.6 < first.high
    assert told.correlation == pytest.approx(0.1, abs=0.05)


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
