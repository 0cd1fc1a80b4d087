"""The headline and the next steps say what the rules below them say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.gating import findings
from evaluation.gate import judge
from evaluation.limits import above, plainly, possible
from evaluation.markdown import markdown
from evaluation.page import page
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.remedies import REMEDIES
from evaluation.report import Report
from evaluation.shown import shown
from evaluation.simulation import EQUAL, Arm, report
from evaluation.telling import mark, next_steps, sentence
from speculation.records import Basis, Finding, Interval, Phase, Verdict
from tests.evaluation.reshaped import changed
from tests.evaluation.test_gate import ARMS

AROUND = Interval(1.0, 0.9, 1.1, 20)
ON_LIMIT = Finding("speed_over_plain", Phase.INCONCLUSIVE, "on it", AROUND, 1.0)
FIRST = Finding("first_token", Phase.INCONCLUSIVE, "open", AROUND, 1.25, more=374)
TAIL = Finding("latency_p95", Phase.INCONCLUSIVE, "open", AROUND, 1.2, more=40)


def open_for(*findings: Finding) -> Verdict:
    basis = Basis("", None, "", {}, 0.05, 64, "")
    return Verdict(Phase.INCONCLUSIVE, findings, basis=basis)


def test_only_what_no_number_of_prompts_decides_is_said_to_lie_on_the_limit() -> None:
    verdict = open_for(ON_LIMIT, FIRST, TAIL)
    said, (first, *_) = sentence(verdict), next_steps(verdict)
    assert "(first token and latency p95), and about 374 more prompts would do" in said
    assert "lies on the limit (speed over plain), where no number of prompts decides" in said
    assert first.startswith("Measure about 374 more prompts, 438 in all, which decides first token")


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([ON_LIMIT], "stays: what was measured lies on the limit (speed over plain)."),
        ([FIRST], "stays: too little was measured to tell (first token), and about 374 more"),
    ],
)
def test_one_kind_of_open_rule_is_told_alone(findings: list[Finding], said: str) -> None:
    verdict = open_for(*findings)
    assert said in sentence(verdict)
    assert next_steps(verdict)[0].startswith("Measure about") == (findings == [FIRST])


def test_one_prompt_is_not_called_prompts() -> None:
    verdict = open_for(Finding("first_token", Phase.INCONCLUSIVE, "open", AROUND, 1.25, more=1))
    assert "about 1 more prompt would do" in sentence(verdict)
    assert next_steps(verdict)[0].startswith("Measure about 1 more prompt, 65 in all: add")


def steps_of(measured: Report, policy: Policy | None = None) -> str:
    verdict = judge(policy or Policy(prompts=64), measured)
    assert verdict.phase is Phase.INCONCLUSIVE
    return " ".join(next_steps(verdict))


def test_each_reason_why_nothing_can_be_concluded_has_its_own_remedy() -> None:
    good = report(ARMS, seed=1)
    assert "run the same command again" in steps_of(replace(good, incomplete="it hangs"))
    failed = steps_of(replace(good, errors={**good.errors, "candidate": 60}))
    assert "into a new folder" in failed
    assert "server.log" in failed
    assert "command again" not in failed, "a folder keeps its failures"
    few = steps_of(good, Policy(prompts=64, minimum_prompts=65))
    assert "`paceline evaluate --plan`" in few
    odd = steps_of(replace(good, conditions=replace(good.conditions, draft_len=0)))
    assert "into a new folder" in odd


def test_texts_that_were_not_compared_are_to_be_measured_and_no_bug_is_reported() -> None:
    good = report(ARMS, seed=1)
    old = replace(
        good,
        requests=tuple(replace(r, parity=None) if r.run == "speed" else r for r in good.requests),
    )
    said = steps_of(old)
    assert said.startswith("Measure again with `paceline evaluate`")
    assert "bug" not in said
    spanning = Finding("parity", Phase.INCONCLUSIVE, "open", AROUND, -0.01, more=50)
    assert "measure more prompts" in " ".join(next_steps(open_for(spanning)))
    failed = Verdict.of([Finding("parity_as_served", Phase.FAIL, "apart", AROUND, -0.01)])
    assert "report a bug of the server" in " ".join(next_steps(failed))


def test_a_load_that_was_not_measured_is_to_be_measured() -> None:
    said = steps_of(report(ARMS, seed=1), Policy(prompts=64, must_gain=(1, 8)))
    assert "--speed-concurrency" in said
    assert "prefill" not in said


def test_every_rule_has_a_remedy() -> None:
    for finding in judge(Policy(prompts=64), report(ARMS, seed=1)).findings:
        if mark(finding) != "not judged":
            assert any(finding.rule.startswith(name) for name in (*REMEDIES, "slice ")), finding


def test_what_nobody_judged_carries_no_pass() -> None:
    verdict = judge(Policy(prompts=64), report(ARMS, seed=1))
    assert verdict.phase is Phase.PASS
    rows = {rule.finding.rule: rule for rule in shown(report(ARMS, seed=1), verdict).rules}
    assert rows["p95_not_judged"].phase is Phase.PASS, "as it is stored"
    assert rows["p95_not_judged"].mark == rows["busy_not_measured"].mark == "not judged"
    assert rows["parity"].mark == "PASS"
    written, html = markdown(report(ARMS, seed=1), verdict), page(report(ARMS, seed=1), verdict)
    assert "| **not judged** | p95 not judged |" in written
    assert '<b class="not judged">not judged</b>' in html
    assert any(line.startswith("  not judged   p95_not_judged: ") for line in findings(verdict))


def test_a_share_is_shown_within_0_to_1_and_judged_as_it_is() -> None:
    share = Interval(0.2, -0.02, 0.449, 20)
    assert plainly(possible(share)) == "0.200 (0.000 to 0.449)"
    found = above("slice task a", "", share, 0.0, Policy())
    assert found.interval == share
    assert found.phase is Phase.INCONCLUSIVE


@pytest.mark.parametrize(
    ("parity", "baseline", "said"),
    [
        (EQUAL, EQUAL, "may serve: answers stay what they are and come"),
        (
            Parity(False, 3, 0.25, 0.4),
            Parity(False, None, None, 0.4),
            "answers stay what they are but for rounding and",
        ),
        (
            Parity(False, 3, None, 0.8),
            Parity(False, 3, None, 0.8),
            "answers are as near to those without it as these are to each other and come",
        ),
    ],
)
def test_a_pass_says_of_the_answers_what_parity_found(
    parity: Parity, baseline: Parity, said: str
) -> None:
    whole = report({"candidate": Arm(0.6), "ngram": Arm(0.2)}, seed=1)
    for run in ("acceptance", "speed"):
        whole = changed(whole, "candidate", lambda r: replace(r, parity=parity), run=run)
    whole = changed(whole, "none", lambda r: replace(r, parity=baseline), run="speed")
    verdict = judge(Policy(), whole)
    assert verdict.phase is Phase.PASS, verdict
    assert said in sentence(verdict)
