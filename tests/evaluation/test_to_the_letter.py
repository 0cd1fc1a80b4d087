"""What a tokenizer of ROUGE-L does not count must not hide a text that a server changed."""

from __future__ import annotations

import pytest

from evaluation.client import Answer
from evaluation.report import Report, report_of
from evaluation.samples import Conditions, Measurement, Sample
from evaluation.simulation import conditions
from speculation.records import Counts, Prompt

CONDITIONS: Conditions = conditions(("candidate", "none"), 1, 4)


def answer(text: str) -> Answer:
    return Answer("p", "r", "none", 4, text, "stop", (), Counts(), 3, 0, 4, 1.0, 0.0, 0.1, 0.9)


def compared(said: str, plain: str, reference: str, tokenizer: str) -> Report:
    prompt = Prompt("q", ({"role": "user", "content": "a question"},), reference=reference)
    samples = tuple(
        Sample(run, arm, "q", 0.0, 1, 0, answer(text))
        for run in ("acceptance", "speed")
        for arm, text in (("candidate", said), ("none", plain))
    )
    return report_of(Measurement(CONDITIONS, (prompt,), samples), tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("said", "plain", "tokenizer"),
    [
        ("it is a == b", "it is a != b", "words"),
        ("5 + 3", "5 - 3", "words"),
        ("YES IT IS", "Yes it is", "words"),
        ("我喜欢猫！你呢？", "我喜欢猫。你呢。", "words"),
        ("a\u200bb c", "ab c", "words"),
        ("!!!", "", "words"),
        ("if a:\nb = 1\nc = 2", "if a:\n    b = 1\n    c = 2", "code"),
    ],
)
def test_texts_that_differ_only_in_what_is_not_counted_are_not_as_good_as_equal(
    said: str, plain: str, tokenizer: str
) -> None:
    found = compared(said, plain, plain, tokenizer).of("candidate")
    found += compared(said, plain, plain, tokenizer).of("candidate", "speed")
    scores = [request.parity.rouge_l for request in found if request.parity is not None]
    assert len(scores) == 2
    assert max(scores) < 0.99
    # A reference is somebody else's wording: its case and its commas are not the target's.
    assert {request.rouge_l_reference for request in found} == {1.0}


def test_equal_texts_and_texts_with_other_words_score_as_the_tokenizer_has_it() -> None:
    for said, score in (("a b, c d.", 1.0), ("a b, c e.", 0.75)):
        (request,) = compared(said, "a b, c d.", "a", "words").of("candidate")
        assert request.parity is not None
        assert request.parity.rouge_l == pytest.approx(score)
