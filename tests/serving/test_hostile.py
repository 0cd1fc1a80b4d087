"""Bodies and requests that were written to hurt, over real sockets: each is refused, no more."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.parameters import chat_parameters, completion_parameters
from tests.serving.hostile import BODIES, RAW
from tests.serving.served import Served

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NAMES = sorted({*chat_parameters(), *completion_parameters(), "role", "content", "type", "arm"})
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode())
HELLO = [{"role": "user", "content": "hello"}]


def refused(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert len(answer.content) < 1000  # nothing long is sent back


@given(body=st.binary(max_size=200) | ANYTHING)
@settings(max_examples=25)
def test_no_body_is_answered_with_a_fault(server: Served, body: bytes) -> None:
    for path in (CHAT, COMPLETIONS):
        answer = server.client.post(path, content=body)
        assert answer.status_code < 500
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_no_text_that_is_no_body_is_more_than_refused(server: Served, path: str) -> None:
    for raw in RAW.values():
        refused(server.client.post(path, content=raw))
    assert server.client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_no_body_is_more_than_refused(server: Served, path: str) -> None:
    for body in BODIES.values():
        given = body
        if path == CHAT:
            said = {name: value for name, value in body.items() if name != "prompt"}
            if not said:  # it is the prompt that is hostile, which a chat has not
                continue
            given = {"messages": HELLO, **said}
        refused(server.client.post(path, content=json.dumps(given)))
    assert server.client.get("/health/ready").status_code == 200


def test_the_same_body_as_another_kind_of_content_is_a_body_all_the_same(server: Served) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 1})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "nonsense", ""):
        headers = {"content-type": kind}
        answer = server.client.post(COMPLETIONS, content=body, headers=headers)
        assert answer.status_code == 200


def said(served: Served, raw: bytes) -> bytes:
    """The first line of what is answered to bytes that are no request of a decent client."""
    host = httpx.URL(served.url)
    with socket.create_connection((host.host, host.port or 0), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").readline()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, where none is spoken
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
        b"content-length: 6\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        b"zz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{",
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
    ],
    ids=["9.9", "tls", "less than none", "two lengths", "chunks", "half", "path", "headers"],
)
def test_what_is_no_request_ends_its_connection_and_nothing_else(
    server: Served, raw: bytes
) -> None:
    try:
        status = said(server, raw)
    except OSError:  # the server has hung up on it
        status = b""
    assert not status.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))
    whole: dict[str, Any] = {"prompt": "x", "max_tokens": 1}
    assert server.client.post(COMPLETIONS, json=whole).status_code == 200


def test_a_client_that_reads_no_more_is_not_waited_for_for_ever(server: Served) -> None:
    server.client.get("/health/live")
    (kept, *_) = server.running.server_state.connections
    socket_of = kept.transport.get_extra_info("socket")
    limit = socket_of.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert limit == 60_000
