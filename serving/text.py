"""Between text and token ids: the target's tokenizer, its chat template and how it is sampled.

Knows transformers' tokenizers and nothing of models, requests or HTTP.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from serving.detokenising import REPLACEMENT, CompletionText
from serving.token_bytes import longest_token_bytes
from speculation.sampling import Sampling

log = logging.getLogger("paceline.serving")

# What of a release's generation defaults says how it is sampled, and as what kind of number.
SAMPLING_DEFAULTS: Mapping[str, Callable[[Any], int | float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
}


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
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # many kinds for a bad folder, and panics of Rust's
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
        sampling = _sampling(defaults) if defaults.get("do_sample") else {}
        text = cls(tokenizer, frozenset(end for end in ends if type(end) is int), sampling)
        text.least_tokens("")  # walks the token table, once, while nobody waits
        return text

    def __len__(self) -> int:
        """Tokens in the table; ids from here on have no text."""
        return int(self._rust.get_vocab_size(with_added_tokens=True))

    @cached_property
    def longest_token_bytes(self) -> int:
        """Bytes of a text that one token stands for at most."""
        return longest_token_bytes(self._rust)

    def least_tokens(self, text: str) -> int:
        """Never more than `text` has; known without cutting it up."""
        return -(-len(text.encode()) // self.longest_token_bytes)

    @property
    def _rust(self) -> Any:
        # The Rust tokenizer itself: the wrapper sets truncation on it at every call, which two
        # threads cannot do at once.
        return self.tokenizer.backend_tokenizer

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a plain prompt, with whatever the tokenizer puts before every text."""
        return self._ids(text, whole=True)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The ids of a conversation with the start of the answer. Raises TemplateError."""
        return self.encode_rendered(self.render(messages))

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        """The ids of what `render` gave."""
        return self._ids(text, whole=False)  # the template has put there what belongs before it

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A conversation as the target reads it. Raises TemplateError."""
        if not self.tokenizer.chat_template:
            raise TemplateError("this target has no chat template: use /v1/completions")
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    add_generation_prompt=True,
                    tokenize=False,
                )
            )
        except Exception as error:  # jinja's, or whatever the template raises; it is sandboxed
            raise TemplateError(
                f"the chat template refuses these messages ({type(error).__name__})"
            ) from error

    def _ids(self, text: str, *, whole: bool) -> tuple[int, ...]:
        # `encode` would hold the interpreter all the while, which for 2 MB are 5 s (SmolLM2's): no
        # stream would get a token, whatever thread this is.
        (found,) = self._rust.encode_batch_fast([text], add_special_tokens=whole)
        return tuple(found.ids)

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
        self,
        stops: Sequence[str] = (),
        stop_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,  # before these many are there, no stop string ends it
    ) -> CompletionText:
        """For an answer that ends at `stops` or `stop_ids` too; none of these is text."""
        return CompletionText(self.decode, self.stop_ids | stop_ids, tuple(stops), min_tokens)


def _sampling(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What of a release's defaults can be done. No client could mend the rest, so it is left out.

    Warns of each that is.
    """
    sampling: dict[str, Any] = {}
    for name, kind in SAMPLING_DEFAULTS.items():
        value = defaults.get(name)
        if value is None:
            continue
        try:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} {value!r:.40}: wanted a number")
            known: Any = {name: kind(value)}
            Sampling(**known)
        except (ValueError, OverflowError) as error:  # infinity is no whole number
            log.warning("generation_config.json is not followed in this: %s", error)
        else:
            sampling[name] = kind(value)
    return sampling


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
