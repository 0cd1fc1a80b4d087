"""Between text and token ids: the target's tokenizer and chat template, stops, detokenising.

Knows transformers' tokenizers and nothing of models, requests or HTTP. What a completion's text is
depends on its tokens alone, never on the blocks in which they came: streamed text, text given at
once and the engine's stop check all go through `CompletionText`, one token at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What of a release's generation defaults says how it is sampled, and as what kind of number.
SAMPLING_DEFAULTS: Mapping[str, Callable[[Any], int | float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
}
REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are not, or not yet, a character


class TokenizerError(ValueError):
    """A folder whose tokenizer cannot serve: got, wanted, what to do."""


class TemplateError(ValueError):
    """The chat template refuses these messages, or there is none."""


@dataclass(frozen=True)
class Text:
    """One target's tokenizer. Safe to use from several threads at once."""

    tokenizer: Any  # transformers' own, for its chat template
    stop_ids: frozenset[int]  # ids that end a completion
    sampling: Mapping[str, Any]  # what the release says of how it is sampled, as Sampling has it

    @classmethod
    def load(cls, folder: Path) -> Text:
        """Read the tokenizer of the Hugging Face directory `folder`. Raises TokenizerError."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # transformers raises many kinds for a bad folder
            raise TokenizerError(
                f"{folder}: the tokenizer cannot be loaded ({error}); wanted tokenizer.json beside "
                "the weights: save the model's tokenizer there"
            ) from error
        if not getattr(tokenizer, "is_fast", False):
            raise TokenizerError(
                f"{folder} holds a {type(tokenizer).__name__}: wanted one with a tokenizer.json"
            )
        defaults = _stored(folder / "generation_config.json")
        ends = {tokenizer.eos_token_id}
        for stored in (defaults, _stored(folder / "config.json")):
            named = stored.get("eos_token_id")
            ends |= set(named) if isinstance(named, list) else {named}
        sampling = {
            name: kind(defaults[name])
            for name, kind in SAMPLING_DEFAULTS.items()
            if defaults.get("do_sample") and isinstance(defaults.get(name), int | float)
        }
        return cls(tokenizer, frozenset(end for end in ends if end is not None), sampling)

    def __len__(self) -> int:
        """Tokens in the table; ids from here on have no text."""
        return int(self._rust.get_vocab_size(with_added_tokens=True))

    @property
    def _rust(self) -> Any:
        # The Rust tokenizer itself: the wrapper sets truncation on it at every call, which two
        # threads cannot do at once.
        return self.tokenizer.backend_tokenizer

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a plain prompt, with whatever the tokenizer puts before every text."""
        return tuple(self._rust.encode(text).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The ids of a conversation with the start of the answer. Raises TemplateError."""
        if not self.tokenizer.chat_template:
            raise TemplateError("this target has no chat template: use /v1/completions")
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # jinja's, or whatever the template raises; it is sandboxed
            raise TemplateError(
                f"the chat template refuses these messages ({type(error).__name__})"
            ) from error
        return tuple(self._rust.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens; ids beyond the table have none."""
        return str(self._rust.decode(list(ids), skip_special_tokens=True))

    def token(self, token_id: int) -> tuple[str, bytes]:
        """One token as text and as bytes; they differ where it is part of a character."""
        text = str(self._rust.decode([token_id], skip_special_tokens=False))
        if REPLACEMENT not in text:
            return text, text.encode()
        written = self._rust.id_to_token(token_id) or ""
        if fallback := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", written):
            return text, bytes.fromhex(fallback[1])
        if all(letter in _BYTE_OF for letter in written):
            return text, bytes(_BYTE_OF[letter] for letter in written)
        return text, text.encode()

    def completion(
        self, stops: Sequence[str] = (), stop_ids: frozenset[int] = frozenset()
    ) -> CompletionText:
        """For an answer that ends at `stops` or `stop_ids` too; none of these is text."""
        return CompletionText(self.decode, self.stop_ids | stop_ids, tuple(stops))


@dataclass
class CompletionText:
    """One completion's text as its tokens come: whole characters only, cut before a stop string."""

    decode: Callable[[Sequence[int]], str]
    stop_ids: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()
    stopped: bool = False  # a stop string is complete; nothing after it is text
    tokens: int = 0  # pushed so far
    _window: list[int] = field(default_factory=list)  # the last tokens with text, and those after
    _shown: int = 0  # of the window, tokens whose text is out
    _held: str = ""  # text that may be the beginning of a stop string

    def push(self, ids: Sequence[int]) -> str:
        """Take `ids`; returns the text that is certain now. Stops at the first stop string."""
        text = ""
        for token in ids:
            if self.stopped:
                break
            self.tokens += 1
            if token not in self.stop_ids:
                self._window.append(token)
                text += self._certain(self._new_text(final=False))
        return text

    def finish(self) -> str:
        """The rest: half characters as replacement characters, beginnings of stop strings."""
        if self.stopped:
            return ""
        text = self._certain(self._new_text(final=True))
        if self.stopped:
            return text
        held, self._held = self._held, ""
        return text + held

    def ends(self, emitted: Sequence[int]) -> int | None:
        """For the engine: how many of `emitted` there are when a stop string is complete."""
        self.push(emitted[self.tokens :])
        return self.tokens if self.stopped else None

    def _new_text(self, *, final: bool) -> str:
        shown = self.decode(self._window[: self._shown])
        text = self.decode(self._window)
        if text.endswith(REPLACEMENT) and not final:
            return ""
        new = text[len(shown) :]
        if new:
            # Keep the newest tokens only: they give the next ones their context (decoders may
            # strip a leading space), and all before them is settled.
            self._window = self._window[self._shown :]
            self._shown = len(self._window)
        return new

    def _certain(self, new: str) -> str:
        if not new:
            return ""
        text = self._held + new
        found = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that may be the beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _stored(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is no such file or it holds something else."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _byte_letters() -> dict[str, int]:
    """Byte-level tokenizers write each byte as one printable letter; this reads it back.

    Bytes that print stand for themselves; the others are written as the letters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in printable]
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF = _byte_letters()
