"""Puts a streamed answer together, and tells when its first token came.

Server-sent events as OpenAI's API sends them: lines `data: {…}`, the last one `data: [DONE]`. Knows
the form of chunks; nothing of connections.
Source: WHATWG HTML, section 9.2, server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

DONE = "[DONE]"


class StreamError(ValueError):
    """A stream that ended too early, or is none."""


def joined(lines: Iterable[str], clock: Callable[[], float]) -> tuple[dict[str, Any], float | None]:
    """The answer as if it had not been streamed, and when (by `clock`) its first text arrived.

    The time is None where there was no text at all. Raises StreamError.
    """
    text: list[str] = []
    first: float | None = None
    outcome = usage = None
    for line in lines:
        if not line.startswith("data:"):
            continue  # blank lines between events, comments that keep a connection open
        data = line[5:].strip()
        if data == DONE:
            break
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise StreamError(f"an event of the stream is not JSON: {data[:200]}") from error
        if not isinstance(chunk, dict) or "error" in chunk:
            raise StreamError(f"the stream ended with an error: {data[:500]}")
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            piece = (choice.get("delta") or {}).get("content")
            if piece:
                first = clock() if first is None else first
                text.append(piece)
            outcome = choice.get("finish_reason") or outcome
    else:
        raise StreamError("the stream ended before it was done")
    choice = {"message": {"content": "".join(text)}, "finish_reason": outcome}
    return {"choices": [choice], "usage": usage}, first
