"""What a report of ours can never hold, whatever was measured and however it went.

Each figure may be possible by itself and all of them together not: requests of an arm that nobody
measured, a block shorter than its requests, one question asked under many names. Such a report was
written by no measurement, so nothing can be concluded from it. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from evaluation.report import Report, RequestFigures
from evaluation.samples import ACCEPTANCE, AGAIN, SEEDED, SPEED, SpeedBlock, digest_of
from evaluation.sequential import MOST_LOOKS

CANDIDATE, NGRAM, PLAIN = "candidate", "ngram", "none"
ENDINGS = ("stop", "length")
NAMED = 5  # of what occurs twice, in a sentence
ROUNDING = 1e-6  # relative, of sums of seconds
# A block's clock runs while its requests are answered: threads begin at once, and real blocks took
# 1.0 to 1.04 times what their requests did. A server that was full or failed in between made them
# wait, and that is no speed of the arm.
MOST_WAITING, LEAST_SECONDS = 3.0, 1.0
FIRST_SHARE = 1_000  # a last look has at most so many times the first one's prompts

Load = tuple[str, float, int, int]


def unsound(report: Report) -> str | None:
    """Why no measurement gave these figures, or None. True of any part of a report too."""
    return next(_reasons(report), None)


def misdescribed(report: Report) -> str | None:
    """Why a whole report is not of the prompts or the look that it says it is of, or None."""
    conditions, looks, have = report.conditions, report.looks, len(report.prompts)
    if report.incomplete is not None:  # ended before all was there, and judged by that
        return None
    if conditions.prompts != have:
        return f"its conditions speak of {conditions.prompts} prompts and it lists {have}"
    if conditions.prompts_digest != digest_of(prompt.digest for prompt in report.prompts):
        return "the digest of its prompts is not that of the prompts it lists"
    if looks is None:
        return None
    planned = looks.planned
    if len(planned) > MOST_LOOKS or planned[-1] > FIRST_SHARE * planned[0]:
        return f"looks at {planned} prompts are none that are planned here"
    if planned[looks.number - 1] != have:
        return (
            f"it is look {looks.number} of {planned} prompts, which is at "
            f"{planned[looks.number - 1]}, and it lists {have}"
        )
    return None


def _reasons(report: Report) -> Iterator[str]:
    yield from _conditions(report)
    yield from _prompts(report)
    yield from _names(report)
    for request in report.requests:
        if (fault := _impossible(request)) is not None:
            yield f"{request.arm} answered prompt {request.prompt!r} with {fault}"
    yield from _again(report)
    yield from _blocks(report)
    yield from _one_pair(report)


def _conditions(report: Report) -> Iterator[str]:
    conditions = report.conditions
    at_least = {
        "prompts": 0,
        "speed_prompts": 0,
        "draft_len": 1,
        "speed_draft_len": 0,
        "max_tokens": 1,
        "concurrency": 1,
        "block_prompts": 1,
    }
    for name, least in at_least.items():
        value = getattr(conditions, name)
        if value is not None and value < least:
            yield f"its conditions have {name} = {value}, and no measurement is below {least}"
    if conditions.speed_prompts > conditions.prompts:
        yield f"{conditions.speed_prompts} of {conditions.prompts} prompts were timed"
    for name in ("temperatures", "speed_concurrencies"):
        values, least = getattr(conditions, name), 0 if name == "temperatures" else 1
        if _twice(values) or any(value < least for value in values):
            yield f"its conditions have {name} {values}, wanted each once and from {least} on"
    if report.facts.passed_over < 0:
        yield f"{report.facts.passed_over} prompts were passed over"
    for arm, failed in report.errors.items():
        if failed < 0:
            yield f"{failed} requests of {arm} failed"


def _prompts(report: Report) -> Iterator[str]:
    """One question under several names is one unit of evidence, however often it is asked."""
    if twice := _twice(prompt.id for prompt in report.prompts):
        yield f"prompts occur more than once: {_listed(twice)}"
    asked: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for prompt in report.prompts:
        asked[prompt.question, prompt.adapter].append(prompt.id)
    again = [ids for ids in asked.values() if len(ids) > 1]
    if again:
        more = sum(len(ids) - 1 for ids in again)
        yield (
            f"{len(report.prompts)} prompts ask {len(asked)} questions ({_listed(again[0])} ask "
            f"the same): {more} of them are no evidence of their own, leave them out and measure "
            "again"
        )


def _names(report: Report) -> Iterator[str]:
    """Everything is of an arm, a prompt and a load that were measured, and is there once."""
    conditions, ids = report.conditions, {prompt.id for prompt in report.prompts}
    arms = {r.arm for r in report.requests} | {b.arm for b in report.blocks} | report.errors.keys()
    if unknown := sorted(arms - conditions.pairs.keys()):
        yield f"it has figures of {_listed(unknown)}, for which it names no pair"
    for request in report.requests:
        if request.prompt not in ids:
            yield f"{request.arm} answered {request.prompt!r}, which is none of its prompts"
        if request.run not in (ACCEPTANCE, AGAIN, SEEDED, SPEED):
            yield f"{request.arm} has a run {request.run!r}, which is none of ours"
        if request.temperature not in conditions.temperatures:
            yield f"{request.arm} answered at temperature {request.temperature:g}, as none did"
        if request.run == SPEED and request.concurrency not in conditions.speed_concurrencies:
            yield f"{request.arm} was timed at {request.concurrency} at once, as none was"
    keys = [(r.run, r.arm, r.prompt, r.temperature, r.concurrency) for r in report.requests]
    if twice := _twice(keys):
        run, arm, prompt, *_ = twice[0]
        yield f"{arm} answered prompt {prompt!r} twice in one {run} run"
    if several := _twice(block.key for block in report.blocks):
        yield f"{several[0][0]} has block {several[0][3]} twice"


def _impossible(request: RequestFigures) -> str | None:
    if request.outcome not in ENDINGS:
        return f"the ending {request.outcome!r}, wanted one of {', '.join(ENDINGS)}"
    if request.prompt_tokens < 1:
        return f"{request.prompt_tokens} tokens in the prompt"
    if not 0 <= request.prompt_tokens_cached <= request.prompt_tokens:
        return f"{request.prompt_tokens_cached} of {request.prompt_tokens} prompt tokens cached"
    if (parity := request.parity) is None:
        return None
    if not 0 <= parity.rouge_l <= 1:
        return f"ROUGE-L {parity.rouge_l} to plain decoding's"
    if parity.equal and (parity.rouge_l, parity.position, parity.gap) != (1, None, None):
        return f"plain decoding's very text, and yet parting from it: {parity}"
    if (parity.gap or 0.0) < 0 or (parity.position or 0) < 0:
        return f"a negative place or gap where it parts from plain decoding: {parity}"
    if parity.gap is not None and parity.position is None:
        return f"a gap at no place: {parity}"
    return None


def _again(report: Report) -> Iterator[str]:
    """Plain decoding with other seeds, the baseline where tokens are drawn, is of every prompt; so
    is the candidate where it was asked again, or with seeds."""
    whole, asked = len(report.prompts), ((PLAIN, AGAIN), (CANDIDATE, AGAIN), (CANDIDATE, SEEDED))
    for temperature in report.conditions.temperatures:
        for arm, run in asked:
            answered = len({r.prompt for r in report.of(arm, run, temperature=temperature)})
            if answered not in (0, whole):
                how = "held against itself" if run == AGAIN else "asked with seeds"
                what = "plain decoding" if arm == PLAIN else "the candidate"
                yield (
                    f"{what} was {how} on {answered} of {whole} prompts at temperature "
                    f"{temperature:g}: wanted every one"
                )
    if others := sorted({r.arm for r in report.requests if r.run == AGAIN} - {PLAIN, CANDIDATE}):
        yield f"{_listed(others)} answered again, as only plain decoding and the candidate do"


def _blocks(report: Report) -> Iterator[str]:
    """A block's clock runs from its first request to its last answer, `concurrency` at a time."""
    asked: dict[Load, list[RequestFigures]] = defaultdict(list)
    for request in report.requests:
        if request.run == SPEED:
            load = request.arm, request.temperature, request.concurrency, request.block
            asked[load].append(request)
    blocks = {block.key: block for block in report.blocks}
    for key in asked.keys() ^ blocks.keys():
        lacks = "requests" if key in blocks else "time"
        yield f"block {key[3]} of {key[0]} at {key[2]} at once has no {lacks}"
        return
    for key, block in blocks.items():
        yield from _block_time(block, [request.seconds for request in asked[key]])
    prompts: dict[tuple[float, int, int], dict[str, frozenset[str]]] = defaultdict(dict)
    for (arm, temperature, concurrency, number), requests in asked.items():
        same = frozenset(request.prompt for request in requests)
        prompts[temperature, concurrency, number][arm] = same
    timed = {key[0] for key in blocks}
    for (_, concurrency, number), by_arm in prompts.items():
        if by_arm.keys() != timed or len(set(by_arm.values())) > 1:
            yield (
                f"in block {number} at {concurrency} at once {_listed(sorted(timed))} did not all "
                "answer the same prompts"
            )


def _block_time(block: SpeedBlock, requests: list[float]) -> Iterator[str]:
    whole = sum(requests)
    least = max(*requests, whole / block.concurrency)
    told = f"block {block.block} of {block.arm} took {block.seconds:.3f} seconds"
    if block.seconds < least * (1 - ROUNDING):
        yield f"{told}, and its requests at {block.concurrency} at once take {least:.3f} at least"
    if block.seconds > MOST_WAITING * whole + LEAST_SECONDS:
        yield (
            f"{told}, and its requests one after the other {whole:.3f}: it was not measured, or "
            "the server made them wait"
        )


def _one_pair(report: Report) -> Iterator[str]:
    """Arms with one pair have one drafter. Of the n-gram draft more is certain: it looks at the
    text alone, so that the same greedy text has the same counts, to the last token."""
    pairs = report.conditions.pairs
    for arm, pair in pairs.items():
        if arm == PLAIN or NGRAM not in pairs:
            continue
        if pair == pairs.get(PLAIN):
            yield f"{arm} was served by pair {pair}, by which plain decoding was"
        if arm == NGRAM or pair != pairs[NGRAM]:
            continue
        same = _greedily_equal(report, NGRAM)
        for request in _greedily_equal(report, arm).values():
            other = same.get((request.prompt, request.temperature))
            if other is not None and other.counts != request.counts:
                yield (
                    f"{arm} and {NGRAM} have one pair, and drafted differently for the same text "
                    f"of prompt {request.prompt!r}: they are not one draft"
                )


def _greedily_equal(report: Report, arm: str) -> dict[tuple[str, float], RequestFigures]:
    """The answers of an arm's acceptance run that are plain decoding's greedy ones."""
    return {
        (request.prompt, request.temperature): request
        for request in report.of(arm, ACCEPTANCE, temperature=0.0)
        if request.parity is not None and request.parity.equal
    }


def _twice(of: Iterable[Any]) -> list[Any]:
    return [each for each, times in Counter(of).items() if times > 1]


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(map(repr, shown[:NAMED])) + (", …" if len(shown) > NAMED else "")
