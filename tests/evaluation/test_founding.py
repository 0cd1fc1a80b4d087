"""The case as it is told: seconds a request and ROUGE-L, before and after, with intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluation.founding import before_after
from evaluation.report import Report
from evaluation.simulation import Arm, report

WHOLE = report({"candidate": Arm(0.6), "ngram": Arm(0.2)}, seed=1, prompts=64)


def referenced(lower: float) -> Report:
    """With references that plain's texts are 0.3 like, and the candidate's `lower` less."""
    rng = np.random.default_rng(0)
    own = {prompt.id: 0.3 + 0.1 * rng.standard_normal() for prompt in WHOLE.prompts}
    noise = {prompt.id: 0.01 * rng.standard_normal() for prompt in WHOLE.prompts}
    return replace(
        WHOLE,
        requests=tuple(
            replace(
                r,
                rouge_l_reference=own[r.prompt]
                - (lower + noise[r.prompt] if r.arm == "candidate" else 0.0),
            )
            for r in WHOLE.requests
        ),
    )


def test_seconds_are_a_mean_request_as_the_client_waited_and_times_is_paired_by_block() -> None:
    told = before_after(WHOLE, "candidate")
    plain, ours = (
        [r.seconds for r in WHOLE.of(arm, "speed", concurrency=1)] for arm in ("none", "candidate")
    )
    assert told.timed == len(ours) == len(plain)
    assert told.plain_seconds == pytest.approx(np.mean(plain))
    assert told.seconds == pytest.approx(np.mean(ours))
    assert told.times is not None
    assert told.times.estimate == pytest.approx(np.mean(ours) / np.mean(plain))
    assert told.times.high < 0.7
    assert told.prefill_share == pytest.approx(0.1 / np.mean(plain))


def test_rouge_l_is_compared_prompt_by_prompt() -> None:
    told = before_after(referenced(0.02), "candidate")
    assert told.compared == 64
    difference = told.rouge_l_difference
    assert difference is not None
    assert told.rouge_l == pytest.approx(told.plain_rouge_l + difference.estimate)  # type: ignore[operator]
    assert difference.low < -0.02 < difference.high < -0.015
    assert "ROUGE-L from 0.3" in told.sentence
    assert f"({difference.estimate:+.3f}, " in told.sentence
    assert f"to {told.seconds:.2f} s a request" in told.sentence


def test_the_same_text_is_exactly_as_like_its_reference() -> None:
    same = before_after(referenced(0.0), "ngram")
    difference = same.rouge_l_difference
    assert difference is not None
    assert (difference.low, difference.estimate, difference.high) == (0.0, 0.0, 0.0)
    assert same.same_text == 1.0


def test_what_was_not_measured_is_said() -> None:
    untimed = replace(
        WHOLE, requests=tuple(r for r in WHOLE.requests if r.run != "speed"), blocks=()
    )
    told = before_after(untimed, "candidate")
    assert (told.seconds, told.times, told.prefill_share) == (None, None, None)
    assert told.sentence == "candidate: too few requests were timed to tell"
    assert "no reference" in before_after(WHOLE, "candidate").sentence
