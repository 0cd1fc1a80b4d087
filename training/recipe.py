"""How a draft is made, as plain values. Standard library only: a control host reads it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """The few dials of regenerating and distilling; the rest is derived."""

    responses: int = 500  # answers of the target to learn from
    max_tokens: int = 128  # of one answer
    max_prompt_tokens: int = 384  # longer prompts are passed over
    kept_probs: int = 32  # likeliest tokens of the target stored at each position
    draft_vocab: int = 8192  # tokens a draft can propose, the most frequent of the target's own
    unroll: int = 4  # draft positions trained, each on the head's own output (EAGLE-3)
    position_decay: float = 0.8  # weight of each further position, as EAGLE-3's published recipe
    epochs: int = 5  # times that every response is learned from
    batch: int = 4  # responses in an optimizer step
    learning_rate: float = 1e-3  # at its peak; it rises and falls by itself
    seed: int = 0  # of the split into train and validation, the order and the initial weights

    def __post_init__(self) -> None:
        counts = ("responses", "max_tokens", "max_prompt_tokens", "kept_probs", "draft_vocab")
        for name in (*counts, "unroll", "epochs", "batch"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} {value}: it must be at least 1")
        for name in ("position_decay", "learning_rate"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise ValueError(f"{name} {value}: it must be above 0 and at most 1")
