"""Rules about the evidence itself: whether there is anything to judge, of drafts that can serve, on
prompts that neither of them has learned.

Where one of these does not pass no other rule is asked: its answer would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from evaluation.completeness import CANDIDATE, unmeasurable
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.spending import told as told_look
from speculation.records import Finding, Phase

NAMED = 5  # prompts that a sentence lists


def evidence(report: Report, policy: Policy, *, alpha: float) -> Iterator[Finding]:
    """`policy` as it is applied, `alpha` as it was configured: a look at growing data has less."""
    yield _measured(report, policy, alpha)
    yield _compatible(report)
    yield _apart(report, policy)


def _measured(report: Report, policy: Policy, alpha: float) -> Finding:
    reason = unmeasurable(report, policy)
    if reason is not None:
        return Finding("measured", Phase.INCONCLUSIVE, f"nothing can be concluded: {reason}")
    conditions = report.conditions
    look = told_look(report.looks, alpha)
    warm = "" if conditions.temperatures == (0.0,) else f" at temperatures {_list(report)}"
    return Finding(
        "measured",
        Phase.PASS,
        f"{', '.join(report.arms)} each answered the same {len(report.prompts)} prompts{warm} on "
        f"one release, drafting {conditions.draft_len} tokens a round"
        + (f"; {look}" if look else ""),
    )


def _compatible(report: Report) -> Finding:
    """Tokens, special tokens, context and formats, as the registry compares them."""
    rule, reasons = "compatible", report.facts.incompatible
    if reasons is None:
        return Finding(
            rule,
            Phase.INCONCLUSIVE,
            "nobody compared the draft's tokens with the target's before this was measured: "
            "measure again with `paceline evaluate`, which does",
        )
    if reasons:
        return Finding(rule, Phase.FAIL, f"the draft does not fit the target: {'; '.join(reasons)}")
    return Finding(rule, Phase.PASS, "the draft fits the target, token by token")


def _apart(report: Report, policy: Policy) -> Finding:
    """A draft is better on what it learned than on anything else, so that judges nothing.

    INCONCLUSIVE and not FAIL: it is the measurement that is at fault, and how good the draft is
    elsewhere stays unknown. What is not on record is not claimed.
    """
    rule, facts = "prompts_apart", report.facts
    if facts.learned:
        named = ", ".join(facts.learned[:NAMED]) + (", …" if len(facts.learned) > NAMED else "")
        return Finding(
            rule,
            Phase.INCONCLUSIVE,
            f"{len(facts.learned)} of {len(report.prompts)} prompts are among those a draft "
            f"learned from ({named}), on which it is better than on any other: leave them out and "
            "measure again",
        )
    left_out = (
        f"; {facts.passed_over} evaluation prompts are among those a draft learned from and were "
        "left out"
        if facts.passed_over
        else ""
    )
    if facts.unknown:
        whose = "new draft" if CANDIDATE in facts.unknown else "serving draft"
        if len(facts.unknown) > 1:
            whose = "new draft or the serving one"
        return Finding(
            f"{rule}_unknown",
            Phase.INCONCLUSIVE if policy.training_on_record else Phase.PASS,
            f"nobody can tell whether the {whose} learned from these prompts, since its training "
            f"is not on record beside it: if it did, its acceptance here flatters it{left_out}",
        )
    return Finding(rule, Phase.PASS, f"no draft learned from any of these prompts{left_out}")


def _list(report: Report) -> str:
    return ", ".join(f"{temperature:g}" for temperature in report.conditions.temperatures)
