"""Drafts without weights: what followed the same few tokens before. Token ids only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from speculation.ngram import SIZES, ContextIndex, Segment, SharedIndex, copied
from speculation.proposal import Ask, NoDrafter, Proposal


@dataclass(slots=True)
class _Row:
    read: int  # tokens of the context that were seen
    index: ContextIndex = field(default_factory=ContextIndex)
    segment: Segment | None = None  # where its own tokens go in the shared index


class NgramDrafter(NoDrafter):
    """Prompt lookup over the row's context and, if `shared_tokens` is set, over earlier outputs.

    The longest match wins, at equal length the context's; the latest among equals. Each round reads
    only what was committed since the last.

    `shared_tokens` (0: off) is how many tokens of all requests' outputs are kept for all rows.
    Prompts are never kept. It is off by default because it lets requests learn of one another:
    no output changes, but how many tokens come at once does, and whoever sees the sizes and times
    of packets can tell that somebody was given a text. Switch it on only where all users may know
    of each other's answers.
    """

    kind = "ngram"

    def __init__(self, shared_tokens: int = 0) -> None:
        self.shared = SharedIndex(shared_tokens) if shared_tokens else None
        self._rows: dict[int, _Row] = {}

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        return Proposal([self._continue(ask) for ask in asks], None)

    def _continue(self, ask: Ask) -> list[int]:
        context = ask.context
        # What stands there when a row first asks counts as its prompt.
        row = self._rows.get(ask.row)
        if row is None:
            row = self._rows[ask.row] = _Row(len(context))
        row.index.follow(context)
        if self.shared is not None:
            row.segment = self.shared.extend(row.segment, context[row.read :])
        row.read = len(context)
        for size in SIZES:
            if size >= len(context):
                continue
            place = row.index.find(context, size)
            if place is not None:
                return copied(context, place, ask.length)
            if self.shared is not None:
                found = self.shared.find(context, size, ask.length)
                if found:
                    return found
        return []

    def move(self, source: int, row: int) -> None:
        self._rows.pop(row, None)
        if source in self._rows:
            self._rows[row] = self._rows.pop(source)

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)
