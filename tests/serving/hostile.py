"""Request bodies that were written to hurt: each has to be refused, quickly and by name.

`RAW` are no JSON objects at all, `BODIES` are objects (given beside the messages of a chat).
"""

from __future__ import annotations

from typing import Any

RAW: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" " * 100_000,
    "not utf-8": b"\xff\xfe{}",
    "utf-8 cut short": b'{"prompt": "\xe2\x82"}',
    "utf-8 of a surrogate": b'{"prompt": "\xed\xa0\x80"}',
    "utf-16": '{"prompt": "x"}'.encode("utf-16"),
    "a mark of its order": b'\xef\xbb\xbf{"prompt": "x"}',
    "lists without end": b"[" * 100_000,
    "objects without end": b'{"a":' * 100_000,
    "lists in lists": b"[" * 50_000 + b"]" * 50_000,
    "a number without end": b'{"max_tokens": ' + b"9" * 10_000 + b"}",
    "a fraction of nothing": b'{"temperature": 1.}',
    "not a number": b'{"temperature": NaN}',
    "infinity": b'{"temperature": Infinity}',
    "infinity below": b'{"temperature": -Infinity}',
    "text": b'"text"',
    "null": b"null",
    "a list": b"[]",
    "two objects": b'{"prompt": "x"}{"prompt": "x"}',
    "a comma too many": b'{"prompt": "x",}',
    "a comment": b'{"prompt": "x" /* y */}',
    "single quotes": b"{'prompt': 'x'}",
    "a zero byte": b'{"prompt": "x"}\x00',
    "a control character": b'{"prompt": "\x01"}',
    "half an escape": b'{"prompt": "\\u12"}',
}
BODIES: dict[str, dict[str, Any]] = {
    "half a character": {"prompt": "\ud800", "messages": [{"role": "user", "content": "\udfff"}]},
    "half a character in a stop": {"prompt": "x", "stop": ["a\ud800"]},
    "half a character in a name": {"prompt": "x", "model": "\ud800"},
    "half a character in a field": {"prompt": "x", "\ud800": 1},
    "a field of megabytes": {"prompt": "x", "y" * 1_000_000: 1},
    "a number of a hundred digits": {"prompt": "x", "max_tokens": 10**100},
    "a number beyond all": {"prompt": "x", "temperature": 1e308 * 10**-300 * 10**300},
    "minus nothing": {"prompt": "x", "max_tokens": -0.5},
    "lists for numbers": {"prompt": "x", "max_tokens": [], "max_completion_tokens": []},
    "objects for numbers": {"prompt": "x", "max_tokens": {}, "seed": {}},
    "truth for a number": {"prompt": "x", "n": True},
    "a thousand answers": {"prompt": "x", "n": 1000},
    "a thousand stops": {"prompt": "x", "stop": ["a"] * 1000},
    "a stop of megabytes": {"prompt": "x", "stop": "a" * 1_000_000},
    "a stop of nothing": {"prompt": "x", "stop": [""]},
    "a deep stop": {"prompt": "x", "stop": [[["a"]]]},
    "biases of everything": {"prompt": "x", "logit_bias": {str(one): 1 for one in range(5000)}},
    "a bias of one token twice": {"prompt": "x", "logit_bias": {"1": 1, "01": 1}},
    "a bias in other digits": {"prompt": "x", "logit_bias": {"\u0661": 1}},
    "tokens that are none": {"prompt": "x", "banned_token_ids": [0, 1.5]},
    "tokens below none": {"prompt": "x", "stop_token_ids": [-1]},
    "tokens beyond all": {"prompt": "x", "allowed_token_ids": [2**31]},
    "prototypes": {"prompt": "x", "__proto__": {"admin": True}},
    "a class": {"prompt": "x", "__class__": "Ask"},
    "an arm of objects": {"prompt": "x", "paceline": {"arm": {"$ne": None}}},
    "a K beyond all": {"prompt": "x", "paceline": {"draft_len": 10**9}},
    "no content": {"prompt": {}, "messages": [{}]},
    "a role of lists": {"prompt": [[]], "messages": [{"role": ["user"], "content": "x"}]},
    "a role of objects": {"prompt": [None], "messages": [{"role": {}, "content": "x"}]},
    "a message too many": {"prompt": 1, "messages": [{"role": "user", "content": "x"}] * 10_000},
}
