"""One of the answers that a request asked for, token by token as the engine emits it.

Pure: events in, pieces of text out. Knows text and log-probabilities; nothing of the APIs' bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bodies import Ask
from serving.detokenising import CompletionText
from serving.text import Text
from serving.token_logprobs import Entry
from speculation.sequence import Event


@dataclass(frozen=True, slots=True)
class Piece:
    """What some tokens add to an answer."""

    tokens: int = 0
    text: str = ""  # less than theirs where some is held back, more where it was before
    entries: tuple[Entry, ...] = ()  # one a token, where they were asked for

    @classmethod
    def joined(cls, pieces: Sequence[Piece]) -> Piece:
        """All of them as one; a sum would copy a long answer once for each of its tokens."""
        return cls(
            sum(piece.tokens for piece in pieces),
            "".join(piece.text for piece in pieces),
            tuple(entry for piece in pieces for entry in piece.entries),
        )


@dataclass
class Choice:
    """One answer as it grows."""

    ask: Ask
    text: Text
    completion: CompletionText
    last: Event | None = None  # the event that ended it

    @classmethod
    def to(cls, ask: Ask, text: Text) -> Choice:
        return cls(ask, text, text.completion(ask.stops, ask.stop_ids, ask.min_tokens))

    def take(self, event: Event) -> list[Piece]:
        """A piece for each of the event's tokens; with its end, what was held back."""
        pieces = [self._piece(event, place) for place in range(len(event.token_ids))]
        if event.outcome is not None:
            self.last = event
            rest = Piece(text=self.completion.finish())
            pieces[-1:] = [Piece.joined([*pieces[-1:], rest])]
        return pieces

    def _piece(self, event: Event, place: int) -> Piece:
        token, start = event.token_ids[place], self.completion.decoded
        new = self.completion.push([token])
        if not self.ask.logprobs:
            return Piece(1, new)
        found = event.logprobs[place]
        return Piece(1, new, (Entry.of(self.text, token, found, self.ask.top_logprobs, start),))
