"""Whether a report can be judged at all: complete, consistent and with enough prompts.

Looks again at what measuring already checked, since a report may come from anywhere.
"""

from __future__ import annotations

import math
from collections import Counter

from evaluation.client import inconsistency
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures

CANDIDATE, INCUMBENT, NGRAM, PLAIN = "candidate", "incumbent", "ngram", "none"


def unmeasurable(report: Report, policy: Policy) -> str | None:
    """The reason why nothing can be concluded from `report`, or None."""
    ids = [prompt.id for prompt in report.prompts]
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
        if answered != Counter(ids):
            return (
                f"{arm} answered {len(answered)} of {len(ids)} prompts, "
                f"{answered.total()} times in all: wanted each once"
            )
        for request in (r for r in report.requests if r.arm == arm):
            fault = _impossible(request, report.conditions.draft_len)
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
