"""Exact equality and first divergence of texts as a metric of the `evaluate` library.

For notebooks and data sets of texts; nothing of Paceline computes by it. What a report says of
parity goes by tokens and their log-probabilities (parity.py), which texts alone do not have. Loads
as rouge_l.py does.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import datasets
import evaluate

from evaluation.rouge import tokens


class TextParity(evaluate.Metric):  # type: ignore[misc] # evaluate ships no types
    """compute(predictions=, references=, tokenizer="words" or "code")."""

    def _info(self) -> Any:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="exact_match: share of pairs that are equal, character by character; "
            "first_divergence: for each pair the index of the first token that differs, or -1",
            citation="",
            inputs_description="predictions and references: texts, one of each a pair",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(
        self, predictions: list[str], references: list[str], tokenizer: str = "words"
    ) -> dict[str, Any]:
        pairs = list(zip(predictions, references, strict=True))
        return {
            "exact_match": sum(ours == theirs for ours, theirs in pairs) / len(pairs),
            "first_divergence": [_first(*pair, tokenizer=tokenizer) for pair in pairs],
        }


def _first(prediction: str, reference: str, *, tokenizer: str) -> int:
    """Index of the first token that differs; -1 where all are the same."""
    both = zip_longest(*(tokens(text, tokenizer=tokenizer) for text in (prediction, reference)))
    return next((place for place, (ours, theirs) in enumerate(both) if ours != theirs), -1)
