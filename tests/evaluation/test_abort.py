"""A measurement that is given up ends at once, whatever its requests wait for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from evaluation.client import Client, MeasurementError
from speculation.records import Prompt

MANY = 8
SOON_SECONDS = 10.0  # and a request's own time is ten times that
PROMPT = Prompt("a", ({"role": "user", "content": "x"},))
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 90\r\ncontent-length: 0\r\n\r\n"


class Server:
    """Takes connections and answers nothing, or that it is busy."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.asked = answer, threading.Semaphore(0)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.open: list[socket.socket] = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.open.append(connection)
            threading.Thread(target=self.hear, args=(connection,), daemon=True).start()

    def hear(self, connection: socket.socket) -> None:
        """A connection that was answered carries the next request."""
        while heard := connection.recv(65536):
            if b"\r\n\r\n" in heard:
                if self.answer:
                    connection.sendall(self.answer)
                self.asked.release()

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        for each in (self.listening, *self.open):
            each.close()


@pytest.fixture(params=[b"", BUSY], ids=["silent", "busy"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with closing(Server(request.param)) as running:
        yield running


def test_requests_in_flight_end_when_they_are_given_up_and_no_later_one_begins(
    server: Server,
) -> None:
    with (
        closing(Client(server.url, timeout_seconds=SOON_SECONDS * 10)) as client,
        ThreadPoolExecutor(MANY) as pool,
    ):

        def ask() -> None:
            client.ask(PROMPT, model="m", arm="none", draft_len=0, max_tokens=1)

        asked = [pool.submit(ask) for _ in range(MANY)]
        for _ in range(MANY):
            assert server.asked.acquire(timeout=SOON_SECONDS)
        client.abort()
        for each in asked:
            assert isinstance(each.exception(timeout=SOON_SECONDS), MeasurementError)
        with pytest.raises(MeasurementError, match="given up"):
            ask()
