"""What to do about a rule that failed or stayed open, a sentence each.

A rule that stayed open for want of figures wants others than one that failed: nobody is told to
report a bug that was not seen. Knows the rules' names; judges nothing.
"""

from __future__ import annotations

from evaluation.completeness import ENDED_EARLY, TOO_FEW, TOO_MANY_FAILED
from evaluation.parting import SURELY_MORE
from evaluation.rules_slices import RULE as SLICE
from speculation.records import Finding, Phase

UNMEASURED = {  # by why nothing can be concluded
    ENDED_EARLY: "See to what the sentence above names, then run the same command again: it goes "
    "on from what was measured.",
    TOO_MANY_FAILED: "See to the server (`server.log` beside the report), then measure into a new "
    "folder: this one keeps its failures, so that the same command would end the same.",
    TOO_FEW: "Add evaluation prompts: `paceline evaluate --plan` says how many the policy needs.",
}
NOT_ASKED = {  # rules that a report has no figures for
    "parity": "Measure again with `paceline evaluate`: this report does not hold how its texts "
    "compare, as those of earlier versions do not.",
    "speed_over_plain": "Measure the speed at every load that the policy's `must_gain` names "
    "(`speed_concurrencies`, or `paceline evaluate --speed-concurrency`).",
}
PARTING_MORE = (
    "Measure once in float32, where every answer has to be equal: if all are, the server rounds "
    "otherwise with a draft than without; if not, report a bug of the server. Do not blame the "
    "draft."
)
PARTING = (
    "Answers part from plain decoding's by more than rounding explains, and too few to tell if "
    "users would notice: measure more prompts. Were it so, the server would be at fault, not the "
    "draft."
)
DRAWN = (
    "Drawn texts differ by chance, and these are too few to tell whether the draft changes what is "
    "drawn: measure more prompts."
)


REMEDIES = {
    "measured": "Measure again with `paceline evaluate` into a new folder: these figures are of no "
    "measurement that can be judged, for the reason above.",
    "compatible": "`paceline check TARGET DRAFT` names the first token that differs; make the "
    "draft for this target.",
    "prompts_apart_unknown": "Put the draft's training on record: measure it where it was made, "
    "with its prompts.json beside it, or let the policy do without (`training_on_record`).",
    "prompts_apart": "Judge on other questions than those it learned from: change "
    "`evaluation_prompts` or `train_prompts`.",
    "acceptance_over_incumbent": "Keep what serves. To do better, train on more of the target's "
    "own answers (`recipe.responses`), or start from the serving draft.",
    "acceptance_floor": "Look at acceptance while it was trained: good there and dead here is a "
    "draft that is wired wrongly for serving; bad there needs more answers or more epochs.",
    "forwards_over_ngram": 'Set `draft = "ngram"` in the pairing: it does as well and needs no '
    "memory, or train on more.",
    "speed_over_plain": "Look at the share of prefill and at what a round costs, below: a smaller "
    "draft, a smaller `draft_len`, or none at that load.",
    "speed_not_kept": "Look at what becomes slow while the server drafts (`server.log` beside the "
    "report), then measure into a new folder.",
    "first_token": "Look at the server's queue and prefill times; the first token should not wait "
    "for the draft.",
    "latency": "Look at the slowest requests of the journal: are they of one kind?",
    "parity_drawn": "Do not blame the draft: report a bug of the server, which draws otherwise "
    "with a draft than without. A path that ignores the temperature is the first to look for.",
    "parity": "Do not blame the draft: report a bug of the server, with the prompt named above. In "
    "float32 every answer has to be equal.",
    "context_cap": "Train on long prompts as well, so that it does not have to be capped.",
}


def remedy(finding: Finding) -> str:
    """What to do about one rule. Text in backticks is a command or a name."""
    rule = finding.rule
    if rule.startswith(SLICE):
        name = rule.removeprefix(SLICE)
        if finding.phase is Phase.INCONCLUSIVE:
            return f"Add evaluation prompts of {name}, on which this hangs."
        return f"Train on more of {name}: add such prompts to `train_prompts` and retrain."
    if rule == "measured":
        why = (step for reason, step in UNMEASURED.items() if reason in finding.statement)
        return next(why, REMEDIES["measured"])
    open_yet = finding.phase is Phase.INCONCLUSIVE
    if open_yet and SURELY_MORE in finding.statement:
        return PARTING_MORE
    if open_yet and finding.interval is None and rule.startswith(tuple(NOT_ASKED)):
        return next(step for name, step in NOT_ASKED.items() if rule.startswith(name))
    if open_yet and rule.startswith("parity"):
        return DRAWN if rule.startswith("parity_drawn") else PARTING
    for name, step in REMEDIES.items():
        if rule.startswith(name):
            return step
    return finding.statement
