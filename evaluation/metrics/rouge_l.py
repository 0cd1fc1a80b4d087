"""ROUGE-L for any script as a metric of the `evaluate` library.

`evaluate.load(<path of this file>)` gives it, or the constructor; neither needs a network, where
`evaluate.load("rouge")` fetches a script from a hub. Importing it takes seconds: evaluate brings
datasets and torch. Hence the folder has no __init__.py: no walk through the package loads it.
"""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from evaluation.rouge import scores


class RougeL(evaluate.Metric):  # type: ignore[misc] # evaluate ships no types
    """compute(predictions=, references=, tokenizer="words" or "code")."""

    def _info(self) -> Any:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="ROUGE-L F, 0 to 1, for any script: the mean as rouge_l, and one a pair",
            citation="Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004",
            inputs_description="predictions and references: texts, one of each a pair",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(
        self, predictions: list[str], references: list[str], tokenizer: str = "words"
    ) -> dict[str, Any]:
        each = scores(predictions, references, tokenizer=tokenizer)
        return {"rouge_l": sum(each) / len(each), "scores": each}
