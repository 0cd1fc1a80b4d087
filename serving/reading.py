"""Takes a request's body off the wire, bounded in bytes and time. Knows nothing of what it says."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from serving.fields import BadRequest

BODY_SECONDS = 30.0  # to send a whole body in


async def read_bytes(request: Request, most_bytes: int) -> bytes:
    """The request's body. Raises BadRequest for one that is too long or comes too slowly."""
    too_long = BadRequest(f"the body is longer than {most_bytes} bytes", status=413)
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and len(stated) < 20 and int(stated) > most_bytes:
        raise too_long
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise too_long
                chunks.append(chunk)
    except TimeoutError:
        raise BadRequest("the body did not come in time", status=408) from None
    return b"".join(chunks)
