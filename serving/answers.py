"""Writes what a client gets: a group's events as OpenAI bodies, whole or in chunks.

Pure: events in, plain objects out. Knows the two API shapes; nothing of HTTP. Both ways of
answering take the same pieces, so streamed and whole answers say the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serving.bodies import Ask
from serving.choices import Choice, Piece
from serving.tickets import Group
from serving.token_logprobs import Entry, chat_logprobs, completion_logprobs
from serving.usage import usage
from speculation.sequence import Event

Body = dict[str, Any]


def to_json(body: object) -> bytes:
    """ASCII only, so that whatever a message quotes can be encoded; NaN is a fault of ours."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


@dataclass
class Answer:
    """A request's answers as they grow."""

    ask: Ask
    group: Group
    model: str
    choices: tuple[Choice, ...]  # in the order of the group's tickets

    @classmethod
    def to(cls, ask: Ask, group: Group, model: str) -> Answer:
        text = group.tickets[0].text
        choices = tuple(Choice.to(ask, text) for _ in group.tickets)
        return cls(ask, group, ask.model or model, choices)

    @property
    def id(self) -> str:
        return self.group.tickets[0].request.id

    def whole(self, pieces: Sequence[Piece]) -> Body:
        """The body of an answer that is not streamed; `pieces` are each choice's, joined."""
        choices = []
        for index, piece in enumerate(pieces):
            choice = self._choice(index, piece.entries, self._finish(index))
            if self.ask.chat:
                choice["message"] = {"role": "assistant", "content": piece.text, "refusal": None}
            else:
                choice["text"] = piece.text
            choices.append(choice)
        kind = "chat.completion" if self.ask.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self.usage()}

    def opening(self) -> list[Body]:
        """The chunks before all others; only chats have them."""
        if not self.ask.chat:
            return []
        said = {"role": "assistant", "content": "", "refusal": None}
        return [self._chunk(index, said) for index in range(len(self.choices))]

    def chunks(self, index: int, pieces: Sequence[Piece]) -> list[Body]:
        """What sends `pieces` of a choice, and its end once that has come."""
        finish = self._finish(index)
        if self.ask.chat:
            chunks = [self._chunk(index, {"content": one.text}, one.entries) for one in pieces]
            return chunks if finish is None else [*chunks, self._chunk(index, {}, (), finish)]
        if finish is not None and not pieces:
            pieces = [Piece()]  # somewhere it has to be said
        chunks = [self._chunk(index, one.text, one.entries) for one in pieces]
        if finish is not None:
            chunks[-1]["choices"][0]["finish_reason"] = finish
        return chunks

    def closing(self) -> Body:
        """The chunk after all others, with the usage; for those who asked for it."""
        kind = "chat.completion.chunk" if self.ask.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": self.usage()}

    def usage(self) -> Body:
        """What all of it cost."""
        lasts = [choice.last for choice in self.choices]
        return usage(self.group.tickets, [last for last in lasts if last is not None], self.ask.n)

    def take(self, index: int, event: Event) -> list[Piece]:
        """What an event adds to a choice, token by token."""
        return self.choices[index].take(event)

    def _finish(self, index: int) -> str | None:
        last = self.choices[index].last
        return None if last is None else last.outcome

    def _chunk(
        self,
        index: int,
        said: Body | str,
        entries: Sequence[Entry] = (),
        finish: str | None = None,
    ) -> Body:
        choice = self._choice(index, entries, finish)
        choice["delta" if self.ask.chat else "text"] = said
        kind = "chat.completion.chunk" if self.ask.chat else "text_completion"
        body: Body = {**self._head(kind), "choices": [choice]}
        return body | {"usage": None} if self.ask.stream_usage else body

    def _choice(self, index: int, entries: Sequence[Entry], finish: str | None) -> Body:
        told = None
        if self.ask.logprobs and entries:
            told = chat_logprobs(entries) if self.ask.chat else completion_logprobs(entries)
        return {"index": index, "finish_reason": finish, "logprobs": told}

    def _head(self, kind: str) -> Body:
        return {
            "id": self.id,
            "object": kind,
            "created": int(self.group.tickets[0].started),
            "model": self.model,
            "system_fingerprint": self.group.tickets[0].pair,
        }
