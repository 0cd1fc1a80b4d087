"""Whether a report can be judged at all: complete, consistent and with enough prompts.

Looks again at what measuring already checked, since a report may come from anywhere.
"""

from __future__ import annotations

import math
from collections import Counter

from evaluation.client import MOST_DRAFTED, inconsistency
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.samples import SPEED

CANDIDATE, INCUMBENT, NGRAM, PLAIN = "candidate", "incumbent", "ngram", "none"


def unmeasurable(report: Report, policy: Policy) -> str | None:
    """The reason why nothing can be concluded from `report`, or None."""
    if report.incomplete is not None:
        return f"measuring ended early: {report.incomplete}"
    ids = [prompt.id for prompt in report.prompts]
    wanted = Counter(dict.fromkeys(ids, len(report.conditions.temperatures)))
    for needed in (CANDIDATE, NGRAM, PLAIN):
        if needed not in report.arms:
            return f"the arm {needed!r} was not measured"
    if len(ids) < policy.minimum_prompts:
        missing = policy.minimum_prompts - len(ids)
        return (
            f"{len(ids)} prompts were measured and no statistic can be trusted below "
            f"{policy.minimum_prompts}: {missing} more are needed"
        )
    for arm in report.arms:
        answered = Counter(request.prompt for request in report.of(arm))
        if answered != wanted:
            return (
                f"{arm} answered {len(answered)} of {len(ids)} prompts, "
                f"{answered.total()} times in all: wanted each once"
            )
        for request in (r for r in report.requests if r.arm == arm):
            drafted: int | None = report.conditions.draft_len
            if request.run == SPEED:
                drafted = report.conditions.speed_draft_len
            fault = _impossible(request, MOST_DRAFTED if drafted is None else drafted)
            if fault is not None:
                return f"{arm} reports what cannot be of prompt {request.prompt!r}: {fault}"
    if any(request.counts.drafted for request in report.of(PLAIN)):
        return "the arm for plain decoding drafted tokens, so there is no baseline"
    if not any(request.counts.judged for request in report.of(CANDIDATE)):
        return "not one token of the candidate was judged: is its draft loaded at all?"
    return None


def _impossible(request: RequestFigures, draft_len: int) -> str | None:
    times = (
        request.seconds,
        request.queue_seconds,
        request.prefill_seconds,
        request.decode_seconds,
    )
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in times):
        return f"times of {times} seconds"
    return inconsistency(request.counts, request.completion_tokens, draft_len)
