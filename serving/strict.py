"""One side of HTTP/1.1 on one connection, stricter than h11 where leniency costs somebody.

Everything here is refused as a protocol error, which ends the connection. Two ways to say how long
a body is, or two keys, are read one way by a proxy and another way by us, so a client could smuggle
a request past it (RFC 9112, section 6.3; RFC 9110, section 5.3). A body in tiny chunks costs the
event loop a thousand times what its bytes do, and all that run here wait for that loop.
"""

from __future__ import annotations

import h11

FREE_CHUNKS = 1024  # of a body; what is written piece by piece by an honest client is short
CHUNK_BYTES = 64  # on average, beyond those
ONCE = frozenset({b"authorization", b"content-length", b"content-type", b"host"})
CLOSE = (b"connection", b"close")
VERSIONS = (b"1.0", b"1.1")


class Strict(h11.Connection):
    """Raises h11.RemoteProtocolError for what a careful server does not read."""

    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            _check(event)
        elif isinstance(event, h11.Data):
            self._chunks += 1
            self._body_bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._body_bytes // CHUNK_BYTES:
                raise h11.RemoteProtocolError("the body comes in too small chunks")
        return event

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # h11 overloads
        if isinstance(event, h11.Response) and self.unread and CLOSE not in event.headers:
            # The client hears that this is the end, and h11 that no other request is to be read.
            event = h11.Response(
                status_code=event.status_code,
                headers=[*event.headers, CLOSE],
                http_version=event.http_version,
                reason=event.reason,
            )
        return super().send(event)

    @property
    def unread(self) -> bool:
        """Whether a request has begun whose end has not come."""
        return self.their_state is h11.SEND_BODY


def _check(request: h11.Request) -> None:
    names = [name for name, _ in request.headers]
    if request.http_version not in VERSIONS:
        raise h11.RemoteProtocolError("unknown version of HTTP", 505)
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError("two ways to say how long the body is")
    for name in ONCE:
        if names.count(name) > 1:
            raise h11.RemoteProtocolError(f"several headers {name.decode()}")
