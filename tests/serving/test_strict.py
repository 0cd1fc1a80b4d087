"""What one connection may cost: no two readings of a request, no endless small pieces, and nobody
is read on who has been answered."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h11
import httpx
import pytest

from serving import strict
from serving.edge import LINES_A_MINUTE, Relayed
from serving.settings import ServeSettings
from serving.strict import FREE_CHUNKS, Strict
from tests.serving.served import Served, serving

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def events(data: bytes) -> list[h11.Event]:
    """What h11 makes of it; raises what it refuses."""
    connection, found = Strict(h11.SERVER), []
    connection.receive_data(data)
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        assert not isinstance(event, type)
        found.append(event)
    return found


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n",
        b"authorization: Bearer a\r\nauthorization: Bearer b\r\n",
        b"content-type: application/json\r\ncontent-type: text/plain\r\n",
    ],
)
def test_what_may_be_read_in_two_ways_is_not_read(lines: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        events(HEAD + lines + b"\r\n")
    once = lines.partition(b"\r\n")[0] + b"\r\n"
    assert events(HEAD + once + b"\r\n")


def test_only_a_known_version_is_read() -> None:
    with pytest.raises(h11.RemoteProtocolError):
        events(b"GET / HTTP/3.0\r\nhost: localhost\r\n\r\n")
    assert events(b"GET / HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize(("size", "chunks", "read"), [(1, 1000, True), (1, 1100, False)])
def test_small_pieces_are_read_while_they_are_few(size: int, chunks: int, read: bool) -> None:
    sent = CHUNKED + b"%x\r\n%s\r\n" % (size, b"x" * size) * chunks
    if read:
        assert len(events(sent)) == 1 + chunks
    else:
        with pytest.raises(h11.RemoteProtocolError, match="too small chunks"):
            events(sent)


def test_a_long_body_in_pieces_of_a_usual_size_is_read() -> None:
    body = b"40\r\n" + b"x" * 64 + b"\r\n"
    assert len(events(CHUNKED + body * 20_000 + b"0\r\n\r\n")) == 20_002


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port or 0)) as client:
        client.settimeout(10)
        yield client


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many pieces of bodies the server has read."""
    count, original = [0], Strict.next_event

    def counted(self: Strict) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = original(self)
        count[0] += isinstance(event, h11.Data)
        return event

    monkeypatch.setattr(Strict, "next_event", counted)
    return lambda: count[0]


def until_the_end(client: socket.socket) -> bytes:
    got = b""
    while piece := client.recv(65_536):
        got += piece
    return got


def test_one_who_was_turned_away_is_not_read_on(
    target_folder: Path, tmp_path: Path, read: Callable[[], int]
) -> None:
    keys = {"keys": {"alice": "a" * 20}, "admin_keys": ("b" * 20,)}
    settings = ServeSettings(home=tmp_path, target=target_folder, **keys)  # type: ignore[arg-type]
    with serving(settings) as served, connected(served) as client:
        client.sendall(CHUNKED + b"1\r\n \r\n")
        answer = client.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer.lower()
        before = read()
        client.sendall(b"1\r\n \r\n" * 50_000)  # taken, or this would not come to an end
        until_the_end(client)
        served.until(lambda: served.client.get("/health/live").is_success)
        assert read() == before <= 1


@pytest.mark.parametrize("path", [b"/v1/completions", b"/health/live"])
@pytest.mark.parametrize("piece", [b"1\r\n \r\n" * 20_000, b"no length\r\n" * 100])
def test_a_body_that_cannot_be_read_ends_its_connection_and_nothing_else(
    server: Served,
    read: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
    path: bytes,
    piece: bytes,
) -> None:
    for _ in range(5):
        with connected(server) as client, suppress(ConnectionError):  # cut while it was sending
            client.sendall(CHUNKED.replace(b"/v1/completions", path) + piece)
            assert client.recv(65_536).startswith((b"HTTP/1.1 400", b"HTTP/1.1 405"))
    assert read() <= 5 * (FREE_CHUNKS + FREE_CHUNKS // strict.CHUNK_BYTES + 1)
    assert not [told for told in caplog.records if told.levelname == "ERROR"], caplog.text
    answer = server.client.post("/v1/completions", json={"prompt": "the", "max_tokens": 1})
    assert answer.is_success


def test_a_refusal_reaches_a_client_that_is_still_sending(server: Served) -> None:
    with connected(server) as client:
        client.sendall(HEAD + b"content-length: 90000000\r\n\r\n")
        for _ in range(8):
            client.sendall(b" " * (1 << 20))
        assert until_the_end(client).startswith(b"HTTP/1.1 413")


def test_what_comes_after_a_refusal_is_taken_up_to_a_bound(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.lingering.LINGER_BYTES", 1 << 20)
    with connected(server) as client:
        client.sendall(HEAD + b"content-length: 90000000\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            client.sendall(b" " * (64 << 20))


def test_anybody_can_make_the_http_server_warn_a_few_times_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import logging

    now = [0.0]
    handler = Relayed(lambda: now[0])

    def warn(words: str) -> None:
        handler.emit(logging.LogRecord("uvicorn", logging.WARNING, "", 0, words, None, None))

    for _ in range(50):
        warn("Invalid HTTP request received.")
    warn("No supported WebSocket library detected. Please use this and that.")
    assert len(caplog.messages) == LINES_A_MINUTE
    now[0] = 60.0
    warn("Invalid HTTP request received.")
    assert caplog.messages[LINES_A_MINUTE:] == [
        "the HTTP server said 40 things more",
        "the HTTP server says: Invalid HTTP request received.",
    ]
