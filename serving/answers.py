"""Writes what a client gets: a ticket's events as OpenAI bodies, whole or in chunks.

Pure: events in, plain objects out. Knows the two API shapes and the text of tokens; nothing of
HTTP. Both ways of answering take the same pieces, so streamed and whole answers say the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from serving.bodies import Ask
from serving.text import CompletionText, Text
from serving.tickets import Ticket
from speculation.sequence import Event, TokenLogprobs

LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI writes this
Body = dict[str, Any]


def to_json(body: object) -> bytes:
    """ASCII only, so that whatever a message quotes can be encoded; NaN is a fault of ours."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


@dataclass(slots=True)
class Piece:
    """What one event adds."""

    text: str = ""
    entries: list[Body] = field(default_factory=list)  # one per token, where they were asked for


@dataclass
class Answer:
    """One request's answer as it grows."""

    ask: Ask
    ticket: Ticket
    model: str
    text: Text
    completion: CompletionText
    _length: int = 0  # characters so far

    @classmethod
    def to(cls, ask: Ask, ticket: Ticket, model: str) -> Answer:
        text = ticket.loaded.text
        return cls(ask, ticket, model, text, text.completion(ask.stops, ask.stop_ids))

    def take(self, event: Event) -> Piece:
        """The event's text, and its tokens' log-probabilities where they were asked for."""
        piece = Piece()
        for place, token in enumerate(event.token_ids):
            start = self._length
            new = self.completion.push([token])
            piece.text += new
            self._length += len(new)
            if self.ask.logprobs:
                piece.entries.append(self._entry(token, event.logprobs[place], start))
        if event.outcome is not None:
            rest = self.completion.finish()
            piece.text += rest
            self._length += len(rest)
        return piece

    def whole(self, pieces: list[Piece], last: Event) -> Body:
        """The body of an answer that is not streamed."""
        text = "".join(piece.text for piece in pieces)
        entries = [entry for piece in pieces for entry in piece.entries]
        choice: Body = {
            "index": 0,
            "finish_reason": last.outcome,
            "logprobs": self._logprobs(entries),
        }
        if self.ask.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        kind = "chat.completion" if self.ask.chat else "text_completion"
        return {**self._head(kind), "choices": [choice], "usage": usage(self.ticket, last)}

    def opening(self) -> Body | None:
        """The chunk before all others; only chats have one."""
        if not self.ask.chat:
            return None
        return self._chunk({"role": "assistant", "content": "", "refusal": None}, [], None)

    def chunks(self, piece: Piece, event: Event) -> list[Body]:
        """What one event sends: nothing while all its text is held back."""
        if not self.ask.chat:
            if piece.text or piece.entries or event.outcome is not None:
                return [self._chunk(piece.text, piece.entries, event.outcome)]
            return []
        chunks = []
        if piece.text or piece.entries:
            chunks.append(self._chunk({"content": piece.text}, piece.entries, None))
        if event.outcome is not None:
            chunks.append(self._chunk({}, [], event.outcome))
        return chunks

    def closing(self, last: Event) -> Body:
        """The chunk after all others, with the usage; for those who asked for it."""
        kind = "chat.completion.chunk" if self.ask.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": usage(self.ticket, last)}

    def _chunk(self, said: Body | str, entries: list[Body], finish: str | None) -> Body:
        choice: Body = {"index": 0, "finish_reason": finish, "logprobs": self._logprobs(entries)}
        choice["delta" if self.ask.chat else "text"] = said
        body = {
            **self._head("chat.completion.chunk" if self.ask.chat else "text_completion"),
            "choices": [choice],
        }
        return body | {"usage": None} if self.ask.stream_usage else body

    def _head(self, kind: str) -> Body:
        return {
            "id": self.ticket.request.id,
            "object": kind,
            "created": int(self.ticket.started),
            "model": self.model,
            "system_fingerprint": self.ticket.loaded.pair,
        }

    def _entry(self, token: int, found: TokenLogprobs, start: int) -> Body:
        top = [(self.text.token(other), logprob) for other, logprob in found.top]
        named, raw = self.text.token(token)
        return {
            "token": named,
            "bytes": list(raw),
            "logprob": max(found.logprob, LEAST_LOGPROB),
            "top_logprobs": [
                {"token": name, "bytes": list(other), "logprob": max(logprob, LEAST_LOGPROB)}
                for (name, other), logprob in top[: self.ask.top_logprobs]
            ],
            "start": start,
        }

    def _logprobs(self, entries: list[Body]) -> Body | None:
        if not self.ask.logprobs or not entries:
            return None
        if self.ask.chat:
            kept = [{k: v for k, v in entry.items() if k != "start"} for entry in entries]
            return {"content": kept, "refusal": None}
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [
                {top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in entries
            ],
            "text_offset": [entry["start"] for entry in entries],
        }


def usage(ticket: Ticket, last: Event) -> Body:
    """What the request cost, as OpenAI counts it and as Paceline does."""
    assert last.counts is not None
    counts, prompt = last.counts, len(ticket.request.prompt_ids)
    arm, draft_len = ticket.arm, ticket.draft_len
    return {
        "prompt_tokens": prompt,
        "completion_tokens": counts.emitted,
        "total_tokens": prompt + counts.emitted,
        "prompt_tokens_details": {"cached_tokens": last.cached},
        "paceline": {
            "pair": arm.pair,
            "drafter": arm.name,
            "release": ticket.loaded.host.release.digest,
            "draft_len": draft_len,
            "rounds": counts.rounds,
            "plain_forwards": counts.plain_forwards,
            "drafted": counts.drafted,
            "accepted": counts.accepted,
            "emitted": counts.emitted,
            "judged_per_position": list(counts.judged_per_position),
            "accepted_per_position": list(counts.accepted_per_position),
            "prompt_tokens_cached": last.cached,
            "queue_seconds": ticket.waiting_seconds + last.queue_seconds,
            "prefill_seconds": last.prefill_seconds,
            "decode_seconds": last.decode_seconds,
        },
    }
