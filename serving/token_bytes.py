"""How many bytes of text one token can stand for at most, so that a text is known to be too long
before anybody has read it.

Knows the `tokenizers` library's parts; nothing of texts. A tokenizer that may make less of a text
(lower case, no accents, one unknown token for a whole word) has no such bound.
"""

from __future__ import annotations

import re
from typing import Any

UNBOUNDED = 2**62
# Steps before a text is cut up that do not shorten it; composing makes three bytes of nine at most.
KEEPING = re.compile(
    r"(NFC|ByteLevel)\([^()]*\)|Prepend\([^()]*\)|Replace\(pattern=String\(\" \"\), content=\"▁\"\)"
)
COMPOSED = 3


def longest_token_bytes(tokenizer: Any) -> int:
    """Of a Rust tokenizer: bytes a token; UNBOUNDED where nothing can be said.

    White space beside an added token that swallows it is not counted as text.
    """
    steps = repr(tokenizer.normalizer)
    several = r"Sequence\(normalizers=\[[, ]*\]\)"
    known = tokenizer.normalizer is None or re.fullmatch(f"({several})?", KEEPING.sub("", steps))
    every_byte = "ByteLevel(" in f"{steps}{tokenizer.pre_tokenizer!r}" or getattr(
        tokenizer.model, "byte_fallback", False
    )
    if not known or not every_byte:
        return UNBOUNDED
    # Byte-level tokens are written with one letter a byte, of one or two bytes: more, never less.
    table = tokenizer.get_vocab(with_added_tokens=True)
    longest = max((len(token.encode()) for token in table), default=1)
    return longest * (COMPOSED if "NFC" in steps else 1)
