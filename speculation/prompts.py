"""Reads prompts: one at a time, a chunk a step, so that a long one does not stall who is decoding.

A prompt that begins as an earlier one did takes that one's keys, values and states. The forward of
its last chunk gives the answer's first token. Knows the target's side; a draft reads a prompt when
it is first asked.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from speculation.cache import RowCache
from speculation.commit import Observer, commit_first
from speculation.drafting import Drafting
from speculation.forward import Forward
from speculation.judging import Draft, judge
from speculation.prefixes import BLOCK, Prefixes
from speculation.rows import Rows
from speculation.sequence import Event, Running

PREFILL_CHUNK = 256  # tokens


class Prompts:
    """Reads the prompt of whoever owns the row behind the running ones."""

    def __init__(
        self,
        rows: Rows,
        forward: Forward,
        cache: RowCache,  # the target's
        drafting: Drafting,
        *,
        prefix_tokens: int,
        observer: Observer | None,
        clock: Callable[[], float],
    ) -> None:
        self._rows, self._forward, self._cache, self._drafting = rows, forward, cache, drafting
        self._observer, self._clock = observer, clock
        # An observer is told of every position, so that none may be left out.
        self._prefixes = Prefixes(0 if observer is not None else prefix_tokens)

    def begin(self, sequence: Running) -> None:
        """`sequence` is next: what an earlier prompt shares with its own need not be read."""
        self._rows.reading = sequence
        sequence.admitted = self._clock()
        blocks = self._prefixes.match(_kind(sequence), sequence.tokens)
        for place, (keys, values, *states) in enumerate(blocks):
            self._cache.write(self._rows.next, place * BLOCK, keys, values)
            sequence.states.extend(states)
        sequence.prefilled = sequence.cached = len(blocks) * BLOCK
        if sequence.states:
            self._drafting.observe(sequence, self._rows.next, 0, torch.cat(sequence.states))

    def read(self) -> Event | None:
        """Read one chunk; the first token's event after the last one."""
        sequence, row = self._rows.reading, self._rows.next
        assert sequence is not None
        chunk = sequence.tokens[sequence.prefilled : sequence.prefilled + PREFILL_CHUNK]
        hidden, features = self._forward.states(
            [chunk], [sequence.prefilled], [row], [sequence.request.adapter]
        )
        sequence.plain_forwards += 1
        if not bool(torch.isfinite(hidden).all()):
            return self._failed(sequence)
        states = None if features is None else features[0]
        self._drafting.observe(sequence, row, sequence.prefilled, states)
        if states is not None and self._prefixes.capacity:
            sequence.states.append(states)
        sequence.prefilled += len(chunk)
        if sequence.prefilled < len(sequence.tokens):
            if self._observer is not None:
                self._observer(sequence.request.id, states, hidden[0, :0])
            return None
        return self._first(sequence, states, self._forward.logits(hidden[:, -1:]))

    def _first(self, sequence: Running, states: Tensor | None, logits: Tensor) -> Event:
        """The whole prompt is read; `logits` [1, 1, V] follow it."""
        undrafted = Draft([], None, sequence.past, sequence.key, len(sequence.tokens))
        _, (token,) = judge(logits, [undrafted])
        if token is None:
            return self._failed(sequence)
        self._keep(sequence)
        if self._observer is not None:
            self._observer(sequence.request.id, states, logits[0])
        self._rows.join(sequence)
        sequence.first_token = self._clock()
        event = commit_first(sequence, token, logits[0], clock=self._clock)
        if event.outcome is not None:
            self._rows.leave(sequence)
        return event

    def _failed(self, sequence: Running) -> Event:
        """The target gave no number."""
        self._rows.abandon(sequence)
        sequence.first_token = self._clock()
        return sequence.last_event("error", self._clock())

    def _keep(self, sequence: Running) -> None:
        """Let other prompts begin as this one did."""
        if not self._prefixes.capacity:
            return
        row = self._rows.next
        states = torch.cat(sequence.states) if sequence.states else None

        def save(start: int, end: int) -> tuple[Tensor, ...]:
            keys, values = self._cache.read(row, start, end)
            return (keys, values) if states is None else (keys, values, states[start:end].clone())

        self._prefixes.add(_kind(sequence), sequence.request.prompt_ids, save)
        sequence.states = []

    def forget(self, adapter: str) -> None:
        """An adapter has gone: another of its name would not be the same."""
        self._prefixes.forget(lambda kind: isinstance(kind, tuple) and kind[0] == adapter)


def _kind(sequence: Running) -> tuple[str | None, str]:
    """What a prompt must share with another's beginning besides its tokens."""
    return sequence.request.adapter, sequence.request.scope
