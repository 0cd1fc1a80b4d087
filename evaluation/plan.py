"""Says before a measurement what it will be able to decide, and how many prompts a rule needs.

Theory only: nothing is measured here. Knows the policy and the statistics; no endpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.policy import Policy
from evaluation.statistics import distance_seen, prompts_needed

POWER = 0.9
ROUGE_SPREADS = (0.05, 0.10)  # standard deviation of a prompt's paired difference


@dataclass(frozen=True, slots=True)
class Plan:
    """What a number of prompts can decide at the policy's alpha with power 0.9."""

    prompts: int
    spread: float  # expected standard deviation of one prompt's difference in acceptance
    sure_gain: float  # a draft truly better than the incumbent by this passes 9 times in 10
    prompts_if_equal: int | None  # to pass a draft that is truly as good as the incumbent
    prompts_for_rouge: tuple[int, ...]  # at the spreads above

    @property
    def sentences(self) -> Sequence[str]:
        """For people, one idea each."""
        equal = self.prompts_if_equal
        rouge = " or ".join(
            f"{count} (spread {spread:g})"
            for count, spread in zip(self.prompts_for_rouge, ROUGE_SPREADS, strict=True)
        )
        gain = "no worse" if self.sure_gain <= 0 else f"better by {self.sure_gain:.3f}"
        return (
            f"With {self.prompts} prompts a draft that is truly {gain} in acceptance passes "
            "9 times in 10.",
            f"One that is exactly as good needs {'no end of' if equal is None else equal} prompts.",
            f"Should the texts have to be compared by ROUGE-L, that needs {rouge} prompts.",
        )


def plan(
    policy: Policy,
    *,
    draft_len: int = 4,
    answer_tokens: float = 80.0,
    acceptance: float = 0.5,  # expected, of either draft
    correlation: float = 0.10,  # within a request
) -> Plan:
    """The spread follows from the number of judged tokens in an answer and their correlation; the
    two drafts are taken as independent given the prompt, which errs on the side of more prompts."""
    survivals = [acceptance**position for position in range(draft_len + 1)]
    judged = answer_tokens * sum(survivals[:-1]) / sum(survivals)
    one = acceptance * (1 - acceptance) / judged * (1 + (judged - 1) * correlation)
    spread = math.sqrt(2 * one)
    distance = distance_seen(spread, policy.prompts, alpha=policy.alpha, power=POWER)
    rouge = (
        prompts_needed(each, policy.rouge_l_margin, alpha=policy.alpha, power=POWER) or 0
        for each in ROUGE_SPREADS
    )
    return Plan(
        prompts=policy.prompts,
        spread=spread,
        sure_gain=distance - policy.acceptance_margin,
        prompts_if_equal=prompts_needed(
            spread, policy.acceptance_margin, alpha=policy.alpha, power=POWER
        ),
        prompts_for_rouge=tuple(rouge),
    )
