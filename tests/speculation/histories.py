"""Long random lives of a drafter's rows: joining, drafting or not, accepting, moving, leaving.

A stand-in for the engine that accepts as it likes, so that every rollback comes up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from speculation.drafters import Ask, Drafter, Proposal
from speculation.sampling import Sampling

SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_p=0.9),
    Sampling(temperature=1.2, top_k=20, min_p=0.01),
    Sampling(temperature=1.0, seed=5),  # coupled
)


@dataclass
class Sequence:
    number: int
    tokens: list[int]
    sampling: Sampling
    observed: int = 0  # positions whose states were shown


@dataclass
class History:
    """`check` is called with each round's asks, their sequences and the proposal."""

    drafter: Drafter
    vocab_size: int
    check: Callable[[list[Ask], list[Sequence], Proposal], None]
    observe: Callable[[Sequence, int, int, int], None]  # sequence, row, start, end
    slots: int = 4
    max_len: int = 96
    seed: int = 0
    rows: list[Sequence] = field(default_factory=list)
    checked: int = 0  # asked rows
    full: int = 0  # of them with everything accepted

    def live(self, rounds: int) -> None:
        self.random = random.Random(self.seed)
        self.joined = 0
        for _ in range(rounds):
            if len(self.rows) < self.slots and self.random.random() < 0.5:
                self._join()
            if self.rows:
                self._round()
            if len(self.rows) > 1 and self.random.random() < 0.1:
                self._leave(self.random.randrange(len(self.rows)))
            for row in reversed(range(len(self.rows))):
                if len(self.rows[row].tokens) > self.max_len - 20:
                    self._leave(row)

    def _token(self) -> int:
        return self.random.randrange(self.vocab_size)

    def _join(self) -> None:
        prompt = [self._token() for _ in range(self.random.choice((1, 2, 7, 40)))]
        sequence = Sequence(self.joined, prompt, self.random.choice(SAMPLINGS))
        self.joined += 1
        self.rows.append(sequence)
        row = len(self.rows) - 1
        for start in range(0, len(prompt), 16):  # prefill, chunk by chunk
            self._observe(row, min(start + 16, len(prompt)))
        sequence.tokens.append(self._token())

    def _observe(self, row: int, end: int) -> None:
        sequence = self.rows[row]
        self.observe(sequence, row, sequence.observed, end)
        sequence.observed = end

    def _round(self) -> None:
        asked = [row for row in range(len(self.rows)) if self.random.random() < 0.75]
        self.random.shuffle(asked)
        asks = [
            Ask(
                row,
                list(self.rows[row].tokens),
                self.random.choice((1, 2, 3, 5)),
                self.rows[row].sampling,
                seed=self.rows[row].number,
            )
            for row in asked
        ]
        drafted: dict[int, list[int]] = {}
        if asks:
            proposal = self.drafter.propose(asks)
            self.check(asks, [self.rows[row] for row in asked], proposal)
            self.checked += len(asks)
            drafted = dict(zip(asked, proposal.ids, strict=True))
        for row, sequence in enumerate(self.rows):
            draft = drafted.get(row, [])
            kept = self.random.choice((0, len(draft), len(draft), len(draft) // 2))
            self.full += kept == len(draft) > 0
            sequence.tokens += [*draft[:kept], self._token()]
            self._observe(row, len(sequence.tokens) - 1)

    def _leave(self, row: int) -> None:
        self.drafter.forget(row)
        last = self.rows.pop()
        if row < len(self.rows):
            self.rows[row] = last
            self.drafter.move(len(self.rows), row)
