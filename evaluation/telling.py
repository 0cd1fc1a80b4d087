"""A verdict in one sentence for whoever decides, and what to do next.

Knows the rules' names and what failing one of them means for people. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from evaluation.remedies import remedy
from evaluation.rules_parity import RULE as PARITY
from evaluation.rules_slices import RULE as SLICE
from speculation.records import Finding, Phase, Verdict

MEANS = {  # how a rule's name begins, and what its failure means
    "acceptance_over_incumbent": "the draft that serves now is better",
    "acceptance_floor": "the target throws away most of what it proposes",
    "forwards_over_ngram": "the free n-gram draft, which needs no memory, does as well",
    "speed_over_plain": "it does not make answers faster",
    "first_token": "the first word of an answer comes too late with it",
    "latency": "the slowest answers become slower with it",
    "parity": "answers are not what they are without it, which is a fault of the server and not of "
    "the draft",
    "compatible": "it was made for other tokens than the target's",
}
UNJUDGED = ("_not_judged", "_not_measured", "_unknown")  # how a rule's name ends
SLOWER = "it makes answers slower"


def sentence(verdict: Verdict) -> str:
    """The verdict for people who know nothing of drafts but that they make answers faster."""
    if verdict.phase is Phase.PASS:
        return f"The new draft may serve: {_gain(verdict)}{_cap(verdict)}."
    if verdict.phase is Phase.FAIL:
        failed = [f for f in verdict.findings if f.phase is Phase.FAIL and not f.excused]
        return f"The new draft may not serve: {_joined(map(_meaning, failed))}."
    return f"Not decided, so what serves now stays: {_open(verdict)}."


def mark(finding: Finding) -> str:
    """The phase as people are shown it: what nobody judged holds nothing up, and passed nothing."""
    unjudged = finding.phase is Phase.PASS and finding.rule.endswith(UNJUDGED)
    return "not judged" if unjudged else str(finding.phase)


def next_steps(verdict: Verdict) -> tuple[str, ...]:
    """What to do, most useful first. Text in backticks is a command or a name."""
    if verdict.phase is Phase.PASS:
        return (
            "`paceline promote VERSION --pairing NAME` makes it the champion; a retrain has done "
            "so by itself.",
            *_watch(verdict),
        )
    steps: list[str] = []
    for finding in verdict.findings:
        if finding.phase is verdict.phase and not finding.excused:
            step = remedy(finding)
            if step not in steps:
                steps.append(step)
    if more := more_prompts(verdict):
        settled = "" if not _on_limit(verdict) else f", which decides {_joined(_spanning(verdict))}"
        steps.insert(
            0,
            f"Measure about {more} more prompt{'s' if more > 1 else ''}, "
            f"{_so_far(verdict) + more} in all{settled}: add them to the "
            "pairing's `evaluation_prompts` and raise `prompts` in its `policy` table, or hand "
            "them to `paceline evaluate --prompts`.",
        )
    return tuple(steps)


def more_prompts(verdict: Verdict) -> int | None:
    """Prompts beyond those measured that would probably decide every open rule that any number of
    them decides."""
    if verdict.phase is not Phase.INCONCLUSIVE:
        return None
    return max((f.more or 0 for f in _undecided(verdict)), default=0) or None


def _undecided(verdict: Verdict) -> list[Finding]:
    return [f for f in verdict.findings if f.phase is Phase.INCONCLUSIVE and not f.excused]


def _spanning(verdict: Verdict) -> list[str]:
    """Open rules that more prompts would decide."""
    return [f.rule.replace("_", " ") for f in _undecided(verdict) if f.more is not None]


def _on_limit(verdict: Verdict) -> list[str]:
    """Open rules that no number of prompts would."""
    return [f.rule.replace("_", " ") for f in _undecided(verdict) if f.more is None]


def _so_far(verdict: Verdict) -> int:
    return 0 if verdict.basis is None else verdict.basis.prompts


def _gain(verdict: Verdict) -> str:
    """Speed where it has to gain, the least elsewhere, and acceptance beside what serves."""
    known = [
        (f, f.interval)
        for f in verdict.findings
        if f.rule.startswith("speed_over_plain") and f.interval is not None
    ]
    told = []
    if known:
        first, interval = known[0]
        told.append(
            f"{_texts(verdict)} and come {interval.estimate:.2f} times as fast "
            f"({interval.low:.2f} to {interval.high:.2f}) {_at(first.rule)}"
        )
    if len(known) > 1:
        least, interval = min(known[1:], key=lambda pair: pair[1].estimate)
        told.append(f"{interval.estimate:.2f} times {_at(least.rule)}")
    better = next((f for f in verdict.findings if f.rule == "acceptance_over_incumbent"), None)
    if better is not None and better.interval is not None:
        gained = better.interval.estimate
        more = "more" if gained >= 0 else "less"
        told.append(
            f"the target keeps {abs(gained):.3f} {more} of its tokens than of the serving draft's"
        )
    return ", ".join(told) or "it passes every rule"


def _texts(verdict: Verdict) -> str:
    """What became of the answers, no better than the parity rules have it."""
    judged = [f for f in verdict.findings if f.rule.startswith(PARITY) and mark(f) != "not judged"]
    if any(f.interval is not None for f in judged):
        return "answers are as near to those without it as these are to each other"
    rounded = any("rounding" in f.statement for f in judged)
    return "answers stay what they are" + (" but for rounding" if rounded else "")


def _cap(verdict: Verdict) -> str:
    if any(f.rule == "context_cap" for f in verdict.findings):
        return (
            f"; it is capped at contexts of {verdict.context_measured} tokens, beyond which the "
            "server goes on without it"
        )
    return ""


def _open(verdict: Verdict) -> str:
    if reason := next(
        (f.statement for f in verdict.findings if f.phase is Phase.INCONCLUSIVE and not f.interval),
        None,
    ):
        return reason
    told = []
    if more := more_prompts(verdict):
        told.append(
            f"too little was measured to tell ({_joined(_spanning(verdict))}), and about {more} "
            f"more prompt{'s' if more > 1 else ''} would do"
        )
    if on_limit := _on_limit(verdict):
        lies = f"what was measured lies on the limit ({_joined(on_limit)})"
        told.append(f"{lies}, where no number of prompts decides" if told else lies)
    return "; ".join(told)


def _meaning(finding: Finding) -> str:
    if finding.rule.startswith(SLICE):
        return f"it is not good enough on {finding.rule.removeprefix(SLICE)}"
    for name, meaning in MEANS.items():
        if finding.rule.startswith(name):
            if name != "speed_over_plain":
                return meaning
            slower = finding.interval is not None and finding.interval.high < 1
            return f"{SLOWER if slower else meaning} {_at(finding.rule)}"
    return finding.statement


def _at(rule: str) -> str:
    at_once = rule.partition(" at ")[2]
    return f"with {at_once} requests at once" if at_once else "one request at a time"


def _watch(verdict: Verdict) -> Iterable[str]:
    if any(f.rule == "slices_not_judged" for f in verdict.findings):
        yield (
            "Some kinds of prompts were too few to judge by themselves; more of them among the "
            "evaluation prompts would say how it does there."
        )
    if any(f.rule == "prompts_apart_unknown" for f in verdict.findings):
        yield (
            "Nobody knows whether these prompts are among those that it was trained on; a fresh "
            "set of them would tell more."
        )
    if excused := [f.rule for f in verdict.findings if f.excused]:
        yield f"Excused by the policy, and worth a look: {_joined(excused)}."


def _joined(parts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(parts))
    return (
        " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)
    )
