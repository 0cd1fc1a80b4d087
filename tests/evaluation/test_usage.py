"""How many tokens an answer has is believed where its text and log-probabilities bear it out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from evaluation.client import Client, MeasurementError
from evaluation.completeness import unmeasurable
from evaluation.consistency import inconsistency
from evaluation.faulty import FAULTY
from evaluation.gate import judge
from evaluation.parity import Parity
from evaluation.policy import Policy
from evaluation.report import Report
from evaluation.simulation import Arm, arm_with, report
from speculation.records import Phase, Prompt
from tests.evaluation.fake_endpoint import Fake, serving
from tests.evaluation.reshaped import changed

POLICY = Policy(prompts=120)
PROMPT = Prompt("q", ({"role": "user", "content": "question"},))
OLD = arm_with(0.55, correlation=0.10, draft_len=4)


@pytest.fixture(scope="module")
def bad() -> Report:
    """Of a candidate that is far worse than the incumbent."""
    worse = arm_with(0.40, correlation=0.10, draft_len=4)
    return report({"candidate": worse, "incumbent": OLD, "ngram": Arm(0.15)}, seed=3, prompts=120)


def test_one_that_lies_so_that_no_count_contradicts_another_is_caught_by_the_texts(
    bad: Report,
) -> None:
    assert judge(POLICY, bad).phase is Phase.FAIL
    lied = FAULTY["lies: longer answers"](bad)
    for request in lied.of("candidate"):
        assert inconsistency(request.counts, request.completion_tokens, 4) is None
    verdict = judge(POLICY, lied)
    assert verdict.phase is Phase.INCONCLUSIVE
    assert "plain decoding's very text" in verdict.sentence
    assert "161 in its own: its usage is not true" in verdict.sentence


def test_one_answer_of_another_length_is_enough_unless_its_text_is_another(bad: Report) -> None:
    first = bad.of("candidate")[0]
    rest = first.counts.emitted + 1
    longer = replace(
        first,
        counts=replace(first.counts, plain_forwards=first.counts.plain_forwards + 1, emitted=rest),
        completion_tokens=rest,
    )
    lied = changed(bad, "candidate", lambda r: longer if r == first else r)
    assert "its usage is not true" in (unmeasurable(lied, POLICY) or "")
    parted = replace(longer, parity=Parity(False, 9, 0.1, 0.98))
    honest = changed(bad, "candidate", lambda r: parted if r == first else r)
    assert unmeasurable(honest, POLICY) is None


def test_drawn_reports_could_have_been_measured(bad: Report) -> None:
    lengths = {r.prompt: r.completion_tokens for r in bad.of("none")}
    assert len(set(lengths.values())) > 10
    for request in bad.requests:
        assert request.completion_tokens == lengths[request.prompt] <= bad.conditions.max_tokens
        assert inconsistency(request.counts, request.completion_tokens, 4) is None


@dataclass
class Padding(Fake):
    """Reports every proposed token as accepted, and as many tokens as that makes."""

    def body(self, *given: Any) -> dict[str, Any]:
        whole = super().body(*given)
        usage, told = whole["usage"], whole["usage"]["paceline"]
        rounds, positions = told["rounds"], told["draft_len"]
        told["judged_per_position"] = told["accepted_per_position"] = [rounds] * positions
        told["drafted"] = told["accepted"] = rounds * positions
        told["emitted"] = rounds * (positions + 1) + told["plain_forwards"]
        usage["completion_tokens"] = told["emitted"]
        return whole


@dataclass
class Silent(Fake):
    """Says nothing of the last tokens' log-probabilities."""

    unseen: int = 0

    def body(self, asked: Mapping[str, Any], *given: Any) -> dict[str, Any]:
        whole = super().body(asked, *given)
        logprobs = whole["choices"][0]["logprobs"]
        logprobs["content"] = logprobs["content"][: len(logprobs["content"]) - self.unseen]
        return whole


def asked(fake: Fake) -> int:
    """How many log-probabilities an answer has fewer than tokens."""
    with serving(fake), closing(Client(fake.url)) as client:
        answer = client.ask(
            PROMPT, model="toy", arm="candidate", draft_len=4, max_tokens=64, logprobs=True
        )
    return answer.completion_tokens - len(answer.tokens)


def test_tokens_that_nobody_sees_are_a_fault() -> None:
    with pytest.raises(MeasurementError, match=r"\d+ log-probabilities for \d+ tokens"):
        asked(Padding({"candidate": 0.4}))
    with pytest.raises(MeasurementError, match="log-probabilities for"):
        asked(Silent({"candidate": 0.4}, unseen=2))


def test_the_token_that_ends_an_answer_may_be_unseen() -> None:
    assert asked(Fake({"candidate": 0.4})) == 0
    assert asked(Silent({"candidate": 0.4}, unseen=1)) == 1
