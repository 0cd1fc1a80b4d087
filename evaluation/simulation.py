"""Reports made of drawn counts, so that the gate can be asked what it says of a known truth.

A request has its own acceptance, drawn around the arm's mean, and every proposed token is accepted
with that chance until one is not: tokens of one request are correlated, as they are for real. How
easy a prompt is, all arms share in part. To one prompt all arms say the same, so many tokens: where
an arm's rounds end before that, plain forwards say the rest. Nothing is measured and nothing judged
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from evaluation.parity import Parity
from evaluation.report import PairFacts, PromptFacts, Report, RequestFigures
from evaluation.samples import Conditions, SpeedBlock, digest_of
from speculation.records import Counts

ROUNDS = 32  # a request; with 4 drafted and half of them kept, 60 to 70 tokens
FORWARD_SECONDS = 0.02
EQUAL = Parity(True, None, None, 1.0)


@dataclass(frozen=True)
class Arm:
    """What is true of a draft."""

    mean: float  # acceptance of a request, on average over requests
    correlation: float = 0.10  # within a request

    @property
    def shape(self) -> tuple[float, float]:
        """Of the beta law that a request's own acceptance is drawn from."""
        size = 1 / self.correlation - 1
        return self.mean * size, (1 - self.mean) * size

    def acceptance(self, draft_len: int) -> float:
        """The true pooled alpha-hat: expected accepted over expected judged."""
        first, second = self.shape
        moments = [1.0]
        for power in range(draft_len):
            moments.append(moments[-1] * (first + power) / (first + second + power))
        return sum(moments[1:]) / sum(moments[:-1])


def arm_with(acceptance: float, *, correlation: float, draft_len: int) -> Arm:
    """The arm whose true pooled alpha-hat is `acceptance`."""
    mean = optimize.brentq(
        lambda m: Arm(m, correlation).acceptance(draft_len) - acceptance, 0.01, 0.99, xtol=1e-10
    )
    return Arm(float(mean), correlation)


def request_counts(
    arm: Arm, luck: NDArray[np.float64], draft_len: int, rng: np.random.Generator
) -> list[Counts]:
    """One request for each entry of `luck` (standard normal: how easy its prompt is)."""
    if draft_len == 0:
        return [Counts(plain_forwards=64, emitted=64) for _ in luck]
    chances = stats.beta.ppf(stats.norm.cdf(luck), *arm.shape)
    rolls = rng.random((len(luck), ROUNDS, draft_len)) < chances[:, None, None]
    kept = np.cumprod(rolls, axis=2)  # accepted until the first that is not
    accepted = kept.sum(axis=1)
    judged = np.concatenate([np.full((len(luck), 1), ROUNDS), accepted[:, :-1]], axis=1)
    return [
        Counts(
            rounds=ROUNDS,
            plain_forwards=1,
            drafted=ROUNDS * draft_len,
            emitted=int(a.sum()) + ROUNDS + 1,
            judged_per_position=tuple(map(int, j)),
            accepted_per_position=tuple(map(int, a)),
        )
        for a, j in zip(accepted, judged, strict=True)
    ]


def report(
    arms: Mapping[str, Arm],
    *,
    seed: int,
    prompts: int = 64,
    draft_len: int = 4,
    alike: float = 0.5,  # how much of a request's luck is its prompt's, and so shared by the arms
    tasks: Sequence[str] = ("docstring",),
    dead: str | None = None,  # the task on which the candidate has nothing accepted
    speed: float = 1.0,  # seconds of a speculative forward over those of a plain one
) -> Report:
    """`arms` on the same prompts, with plain decoding beside them."""
    rng = np.random.default_rng(seed)
    facts = tuple(
        PromptFacts(f"p{place}", f"{place:064x}", f"{place:064x}", tasks[place % len(tasks)], "en")
        for place in range(prompts)
    )
    shared = rng.standard_normal(prompts)
    requests: list[RequestFigures] = []
    timed = speed_places(prompts)
    drawn: dict[str, tuple[list[Counts], list[float]]] = {}
    for name in (*arms, "none"):
        own = rng.standard_normal(prompts)
        luck = np.sqrt(alike) * shared + np.sqrt(1 - alike) * own
        counts = request_counts(
            arms.get(name, Arm(0.5)), luck, 0 if name == "none" else draft_len, rng
        )
        if name == "candidate" and dead is not None:
            counts = [
                nothing_accepted(count, draft_len) if fact.task == dead else count
                for fact, count in zip(facts, counts, strict=True)
            ]
        drawn[name] = counts, [float(rng.uniform(0.95, 1.05)) for _ in timed]
    drafting = [counts for name, (counts, _) in drawn.items() if name != "none"]
    lengths = [max(each.emitted for each in answers) for answers in zip(*drafting, strict=True)]
    for name, (counts, paces) in drawn.items():
        pace = FORWARD_SECONDS * (1.0 if name == "none" else speed)
        whole = [said(count, length) for count, length in zip(counts, lengths, strict=True)]
        parity = None if name == "none" else EQUAL
        for fact, count in zip(facts, whole, strict=True):
            requests.append(figures("acceptance", name, fact.id, 0, count, pace, parity))
        for number, (place, slower) in enumerate(zip(timed, paces, strict=True)):
            prompt, count, slowed = facts[place].id, whole[place], pace * slower
            requests.append(figures("speed", name, prompt, number // 2, count, slowed, parity))
    return Report(
        conditions((*arms, "none"), prompts, draft_len),
        "words",
        facts,
        tuple(requests),
        speed_blocks(requests),
        PairFacts(incompatible=()),
        errors=dict.fromkeys((*arms, "none"), 0),
    )


def said(counts: Counts, tokens: int) -> Counts:
    """The same rounds in an answer of so many tokens: what they leave takes plain forwards."""
    if not counts.rounds:
        return Counts(plain_forwards=tokens, emitted=tokens)
    rest = tokens - counts.emitted
    return replace(counts, plain_forwards=counts.plain_forwards + rest, emitted=tokens)


def speed_places(prompts: int) -> list[int]:
    """Which prompts are timed: every other one until there are 24, so that a first look has a p95;
    then every fourth."""
    return [*range(0, min(prompts, 48), 2), *range(48, prompts, 4)]


def upto(whole: Report, prompts: int) -> Report:
    """What had been measured when only the first `prompts` were: of the speed runs whole blocks."""
    facts = whole.prompts[:prompts]
    known = {fact.id for fact in facts}
    cut = {(r.arm, r.block) for r in whole.requests if r.run == "speed" and r.prompt not in known}
    requests = tuple(
        r
        for r in whole.requests
        if r.prompt in known and not (r.run == "speed" and (r.arm, r.block) in cut)
    )
    blocks = tuple(block for block in whole.blocks if (block.arm, block.block) not in cut)
    timed = sum(r.run == "speed" and r.arm == "none" for r in requests)
    measured = replace(
        whole.conditions,
        prompts=len(facts),
        prompts_digest=digest_of(fact.digest for fact in facts),
        speed_prompts=timed,
    )
    return replace(whole, conditions=measured, prompts=facts, requests=requests, blocks=blocks)


def nothing_accepted(counts: Counts, draft_len: int) -> Counts:
    """The same answer from a draft of which the target keeps nothing: a round for every token."""
    rounds = counts.emitted - 1
    nothing = (0,) * draft_len
    judged = (rounds, *nothing[1:])
    return Counts(rounds, 1, rounds * draft_len, counts.emitted, judged, nothing)


def speed_blocks(requests: Sequence[RequestFigures]) -> tuple[SpeedBlock, ...]:
    """The blocks of speed runs of one request at a time: each takes what its requests do."""
    seconds: dict[tuple[str, int], float] = {}
    for request in requests:
        if request.run == "speed":
            place = request.arm, request.block
            seconds[place] = seconds.get(place, 0.0) + request.seconds
    return tuple(SpeedBlock(arm, 0.0, 1, block, took) for (arm, block), took in seconds.items())


def figures(
    run: str,
    arm: str,
    prompt: str,
    block: int,
    counts: Counts,
    forward_seconds: float,
    parity: Parity | None,
) -> RequestFigures:
    seconds = counts.forwards * forward_seconds
    return RequestFigures(
        run,
        arm,
        prompt,
        0.0,
        1 if run == "speed" else 8,
        block,
        "stop",
        counts,
        200,
        0,
        counts.emitted,
        seconds + 0.1,
        0.1 + forward_seconds if run == "speed" else None,
        0.0,
        0.1,
        seconds,
        parity,
        None,
    )


def conditions(arms: Sequence[str], prompts: int, draft_len: int) -> Conditions:
    return Conditions(
        release="r" * 64,
        pairs={arm: f"p-{arm}" for arm in arms},
        prompts_digest=digest_of(f"{place:064x}" for place in range(prompts)),
        prompts=prompts,
        speed_prompts=len(speed_places(prompts)),
        draft_len=draft_len,
        max_tokens=ROUNDS * (draft_len + 1) + 1,
        speed_draft_len=None,
        temperatures=(0.0,),
        seed=0,
        concurrency=8,
        speed_concurrencies=(1,),
        block_prompts=2,
        engine="synthetic",
        machine="none",
        code_version="test",
    )
