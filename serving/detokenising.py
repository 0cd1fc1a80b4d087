"""Text from tokens as they come: whole characters only, cut before a stop string.

Knows a decoder and nothing of what is done with its text. What a completion's text is depends on
its tokens alone, never on the blocks in which they came: streamed text, text given at once and the
engine's stop check all go through `CompletionText`, one token at a time, each in bounded time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are not, or not yet, a character
# The bytes of a character that is not complete: at most three, so as many tokens at most hold them,
# and as many replacements at most stand for them.
UNFINISHED = 3


@dataclass
class CompletionText:
    """One completion's text as its tokens come."""

    decode: Callable[[Sequence[int]], str]
    stop_ids: frozenset[int] = frozenset()  # these have no text
    stops: tuple[str, ...] = ()
    min_tokens: int = 0  # a stop string that is complete by then is only text
    stopped: bool = False  # a stop string is complete; nothing after it is text
    tokens: int = 0  # pushed so far
    decoded: int = 0  # characters so far, those included that may begin a stop string
    _settled: list[int] = field(default_factory=list)  # the last tokens whose text is all out
    _before: str = ""  # their text; decoders may strip what a text begins with
    _pending: list[int] = field(default_factory=list)  # those after them
    _text: str = ""  # their text
    _out: int = 0  # characters of it that are out
    _held: str = ""  # text that may be the beginning of a stop string

    def push(self, ids: Sequence[int]) -> str:
        """Take `ids`; returns the text that is certain now. Stops at the first stop string."""
        text = ""
        for token in ids:
            if self.stopped:
                break
            self.tokens += 1
            if token not in self.stop_ids:
                text += self._certain(self._new_text(token))
        return text

    def finish(self) -> str:
        """The rest: half characters as replacement characters, beginnings of stop strings."""
        if self.stopped:
            return ""
        rest = self._text_of_pending()[self._out :]
        self.decoded += len(rest)
        self._pending, self._out = [], 0
        text = self._certain(rest)
        if self.stopped:
            return text
        held, self._held = self._held, ""
        return text + held

    def ends(self, emitted: Sequence[int]) -> int | None:
        """For the engine: how many of `emitted` there are when a stop string is complete."""
        self.push(emitted[self.tokens :])
        return self.tokens if self.stopped else None

    def _text_of_pending(self) -> str:
        text = self.decode([*self._settled, *self._pending])
        if text.startswith(self._before):
            return text[len(self._before) :]
        # The settled tokens end in bytes that, with these behind them, are no character any more.
        return self.decode(self._pending)

    def _new_text(self, token: int) -> str:
        """What no token after this one can change of the text, beyond what is out."""
        self._pending.append(token)
        text = self._text_of_pending()
        if (
            text == self._text
            and len(self._settled + self._pending) > 1
            and not self.decode([token])
        ):
            self._pending.pop()  # it has no text, and would only stand between others
            return ""
        self._text = text
        unsure = min(_unsure(text), max(len(text) - self._out, 0))
        new = text[self._out : len(text) - unsure]
        self._out += len(new)
        if new and not unsure:
            self._settled, self._before = self._pending, self.decode(self._pending)
            self._pending, self._text, self._out = [], "", 0
        elif len(self._pending) > UNFINISHED:
            new += self._forget(unsure)
        self.decoded += len(new)
        return new

    def _forget(self, unsure: int) -> str:
        """Keep the last pending tokens only; returns what of the unsure text is settled by it."""
        self._pending = self._pending[-UNFINISHED:]
        self._text = self._text_of_pending()
        still = min(_unsure(self._text), unsure)
        if unsure and not still:  # without what was before them they are characters after all
            self._out = 0
            return ""
        self._out = len(self._text) - still
        return REPLACEMENT * (unsure - still)

    def _certain(self, new: str) -> str:
        """What of the held text and `new` is no part of a stop string, now or later."""
        if not new:
            return ""
        held = len(self._held)
        text = self._held + new
        # A stop string that ends in the held text was complete before it counted.
        found = [
            place
            for stop in self.stops
            if (place := text.find(stop, max(held + 1 - len(stop), 0))) >= 0
        ]
        if found and self.tokens > self.min_tokens:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _unsure(text: str) -> int:
    """Replacements at the end of `text` that may yet become a character."""
    return min(len(text) - len(text.rstrip(REPLACEMENT)), UNFINISHED)


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that may be the beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
