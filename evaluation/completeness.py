"""Whether a report can be judged at all: complete, consistent and with enough prompts.

Looks again at what measuring already checked, since a report may come from anywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from evaluation.consistency import MOST_DRAFTED, inconsistency
from evaluation.policy import Policy
from evaluation.report import Report, RequestFigures
from evaluation.samples import AGAIN, SPEED
from evaluation.soundness import unsound

# How two reasons are known, by what telling.py says to do about them.
ENDED_EARLY, TOO_MANY_FAILED = "measuring ended early", "the policy's error_limit is"
TOO_FEW = "no statistic can be trusted below"
CANDIDATE, INCUMBENT, NGRAM, PLAIN = "candidate", "incumbent", "ngram", "none"


def unmeasurable(report: Report, policy: Policy) -> str | None:
    """The reason why nothing can be concluded from `report`, or None."""
    return next(_reasons(report, policy), None)


def _reasons(report: Report, policy: Policy) -> Iterator[str]:
    if report.incomplete is not None:
        yield f"{ENDED_EARLY}: {report.incomplete}"
    for needed in (CANDIDATE, NGRAM, PLAIN):
        if needed not in report.arms:
            yield f"the arm {needed!r} was not measured"
    have, missing = len(report.prompts), policy.minimum_prompts - len(report.prompts)
    if missing > 0:
        yield (
            f"{have} prompt{' was' if have == 1 else 's were'} measured and {TOO_FEW} "
            f"{policy.minimum_prompts}: {missing} more "
            f"{'is' if missing == 1 else 'are'} needed"
        )
    for arm in report.arms:
        yield from _of_arm(report, policy, arm)
    yield from _block_times(report)
    yield from _prompt_lengths(report)
    yield from _answer_lengths(report)
    if any(request.counts.drafted for request in report.of(PLAIN)):
        yield "the arm for plain decoding drafted tokens, so there is no baseline"
    if not any(request.counts.judged for request in report.of(CANDIDATE)):
        yield "not one token of the candidate was judged: is its draft loaded at all?"
    if (reason := unsound(report)) is not None:
        yield f"the report is none of ours: {reason}"


def _of_arm(report: Report, policy: Policy, arm: str) -> Iterator[str]:
    ids, temperatures = [prompt.id for prompt in report.prompts], report.conditions.temperatures
    wanted = Counter((prompt, temperature) for prompt in ids for temperature in temperatures)
    answered = Counter((request.prompt, request.temperature) for request in report.of(arm))
    if answered != wanted:
        yield (
            f"{arm} answered {len(answered)} of {len(wanted)} prompts, "
            f"{answered.total()} times in all: wanted each once"
        )
    requests = [request for request in report.requests if request.arm == arm]
    for request in requests:
        drafted: int | None = report.conditions.draft_len
        if request.run == SPEED:
            drafted = report.conditions.speed_draft_len
        fault = _impossible(request, MOST_DRAFTED if drafted is None else drafted)
        if fault is not None:
            yield f"{arm} reports what cannot be of prompt {request.prompt!r}: {fault}"
    failed = report.errors.get(arm, 0)
    if failed > math.ceil(policy.error_limit * len(requests)):
        yield (
            f"{failed} requests of {arm} failed beside {len(requests)} that were answered, and "
            f"{TOO_MANY_FAILED} {policy.error_limit:g} of them: see to the server, then "
            "measure into another folder, since this one keeps its failures"
        )


def _block_times(report: Report) -> Iterator[str]:
    for block in report.blocks:
        if not (math.isfinite(block.seconds) and block.seconds > 0):
            yield f"a block of {block.arm} took {block.seconds} seconds"


def _prompt_lengths(report: Report) -> Iterator[str]:
    """One target counts one prompt's tokens once; two numbers are two targets, or invented."""
    lengths: dict[str, int] = {}
    for request in report.requests:
        if lengths.setdefault(request.prompt, request.prompt_tokens) != request.prompt_tokens:
            yield (
                f"prompt {request.prompt!r} has {lengths[request.prompt]} tokens in one answer's "
                f"usage and {request.prompt_tokens} in another's: what answers is not one target, "
                "or its usage is not true"
            )


def _answer_lengths(report: Report) -> Iterator[str]:
    """One text has one number of tokens: a usage that has more of them invents what it accepted."""
    plain = {(r.prompt, r.temperature): r.completion_tokens for r in report.of(PLAIN)}
    timed = {
        (r.prompt, r.temperature, r.concurrency): r.completion_tokens
        for r in report.of(PLAIN, SPEED)
    }
    own = {(r.prompt, r.temperature): r.completion_tokens for r in report.of(CANDIDATE)}
    for request in report.requests:
        length = plain.get((request.prompt, request.temperature))
        if (request.arm, request.run) == (CANDIDATE, AGAIN):  # compared with its own answer
            length = own.get((request.prompt, request.temperature))
        if request.run == SPEED and request.arm != PLAIN:  # compared with plain as it was timed
            length = timed.get((request.prompt, request.temperature, request.concurrency))
        if request.parity is None or not request.parity.equal or length is None:
            continue
        if request.completion_tokens != length:
            yield (
                f"{request.arm} answered prompt {request.prompt!r} with plain decoding's very "
                f"text, which has {length} tokens in plain decoding's usage and "
                f"{request.completion_tokens} in its own: its usage is not true"
            )


def _impossible(request: RequestFigures, draft_len: int) -> str | None:
    times = (
        request.seconds,
        request.queue_seconds,
        request.prefill_seconds,
        request.decode_seconds,
        request.first_token_seconds or 0.0,
    )
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in times):
        return f"times of {times} seconds"
    counts = request.counts
    whole = (counts.rounds, counts.plain_forwards, counts.drafted, counts.emitted)
    by_position = (*counts.judged_per_position, *counts.accepted_per_position)
    if not all(isinstance(number, int) for number in (*whole, *by_position)):
        return f"counts that are no whole numbers: {counts}"
    parity = request.parity
    scores = (request.rouge_l_reference, None if parity is None else parity.rouge_l)
    if not all(0 <= score <= 1 for score in scores if score is not None):
        return f"ROUGE-L of {scores}"
    if (request.first_token_seconds or 0.0) > request.seconds:
        return f"a first token after {times[4]} seconds of {request.seconds}"
    return inconsistency(request.counts, request.completion_tokens, draft_len)
