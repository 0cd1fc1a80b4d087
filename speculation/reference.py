"""Sampling and verification said plainly, one token and one number at a time.

Lists and floats only. Nothing runs on this: it is what the fast, batched code is tested against,
and where to look up what a parameter means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from speculation.sampling import Sampling

NEVER = -math.inf


def logits_after(
    logits: Sequence[float],
    sampling: Sampling,
    *,
    prompt: Sequence[int],
    emitted: Sequence[int],
    stop_ids: frozenset[int] = frozenset(),
) -> list[float]:
    """The logits of the token after `prompt` and `emitted`, before the temperature."""
    shaped = []
    for token, logit in enumerate(logits):
        if sampling.allowed is not None and token not in sampling.allowed:
            logit = NEVER
        if token in sampling.banned:
            logit = NEVER
        if token in stop_ids and len(emitted) < sampling.min_tokens:
            logit = NEVER
        logit += sum(bias for biased, bias in sampling.logit_bias if biased == token)
        if token in prompt or token in emitted:
            penalty = sampling.repetition_penalty
            logit = logit / penalty if logit > 0 else logit * penalty
        logit -= sampling.frequency_penalty * emitted.count(token)
        logit -= sampling.presence_penalty * (token in emitted)
        shaped.append(logit)
    return shaped


def law(logits: Sequence[float], sampling: Sampling) -> list[float]:
    """The distribution of the next token: temperature, min-p, top-k, top-p."""
    tokens = range(len(logits))
    if sampling.greedy:
        best = max(tokens, key=lambda token: (logits[token], -token))
        return [float(token == best) for token in tokens]
    probs = _softmax([logit / sampling.temperature for logit in logits])
    kept = {token for token in tokens if probs[token] >= sampling.min_p * max(probs)}
    if sampling.top_k:
        weakest = sorted(probs, reverse=True)[: sampling.top_k][-1]
        kept &= {token for token in tokens if probs[token] >= weakest}
    probs = _scaled([prob if token in kept else 0.0 for token, prob in enumerate(probs)])
    if sampling.top_p < 1:
        mass, nucleus = 0.0, set()
        for token in sorted(tokens, key=lambda token: (-probs[token], token)):
            if mass >= sampling.top_p:
                break
            nucleus.add(token)
            mass += probs[token]
        probs = _scaled([prob if token in nucleus else 0.0 for token, prob in enumerate(probs)])
    return probs


def verify(
    target: Sequence[Sequence[float]],  # K + 1 distributions
    draft: Sequence[Sequence[float]],  # K distributions, one-hot for a draft without chance
    drafted: Sequence[int],
    uniforms: Sequence[float],
) -> tuple[int, list[float]]:
    """Tokens kept, and the law of the token that follows them (arXiv 2211.17192, algorithm 1)."""
    for place, token in enumerate(drafted):
        if not uniforms[place] < target[place][token] / draft[place][token]:
            return place, _residual(target[place], draft[place])
    return len(drafted), list(target[len(drafted)])


def verify_block(
    target: Sequence[Sequence[float]],
    draft: Sequence[Sequence[float]],
    drafted: Sequence[int],
    uniforms: Sequence[float],
) -> tuple[int, list[float]]:
    """The same by block verification (Sun et al. 2024, arXiv 2403.10444, algorithm 2).

    Whether a token is kept depends on the block up to it as a whole, so that a late token can make
    good for an early one; never fewer are kept on average than by `verify`.
    """
    weights = [1.0]  # of each prefix: how much of it the target would have written
    kept = 0
    for place, token in enumerate(drafted):
        ratio = target[place][token] / draft[place][token]
        weights.append(min(weights[-1] * ratio, 1.0))
        weight = weights[-1]
        if place + 1 == len(drafted):
            chance = weight
        else:
            pairs = zip(target[place + 1], draft[place + 1], strict=True)
            left = sum(max(weight * wanted - had, 0.0) for wanted, had in pairs)
            rest = left + 1 - weight
            chance = left / rest if rest > 0 else 1.0
        if uniforms[place] < chance:
            kept = place + 1
    if kept == len(drafted):
        return kept, list(target[kept])
    return kept, _residual([weights[kept] * prob for prob in target[kept]], draft[kept])


def _softmax(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    return _scaled([math.exp(logit - largest) for logit in logits])


def _scaled(masses: Sequence[float]) -> list[float]:
    total = sum(masses)
    return [mass / total for mass in masses]


def _residual(target: Sequence[float], draft: Sequence[float]) -> list[float]:
    left = [max(wanted - had, 0.0) for wanted, had in zip(target, draft, strict=True)]
    return _scaled(left if sum(left) > 0 else target)
