"""A client that leaves: nothing is decoded for it any more, wherever its request is."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from serving.settings import ServeSettings
from serving.text import Text
from speculation.sequence import Event
from tests.serving.served import Served, serving

PROMPT = 700  # tokens: read in three chunks


class Steps:
    """Counts the engine's steps, and those taken while somebody who has left is still there."""

    def __init__(self, served: Served) -> None:
        assert served.running.service is not None
        self.tickets = served.running.service.worker.tickets
        self.engine, self.taken, self.late = served.loaded.engine, 0, 0
        self.step = self.engine.step
        self.engine.step = self.watched  # type: ignore[method-assign]  # a test's eye

    def watched(self) -> list[Event]:
        self.taken += 1
        time.sleep(0.005)
        with suppress(RuntimeError):  # the event loop's set has changed meanwhile
            self.late += any(ticket.left is not None for ticket in self.tickets)
        return self.step()

    @property
    def rows(self) -> int:
        return self.engine.running + self.engine.waiting


@pytest.fixture(scope="module")
def served(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    settings = ServeSettings(
        home=home, target=target_folder, draft="none", max_slots=1, max_context=1024
    )
    with serving(settings) as server:
        yield server


@pytest.fixture(scope="module")
def steps(served: Served) -> Steps:
    return Steps(served)


def ask(served: Served, **more: Any) -> socket.socket:
    """A connection on which a long answer was asked for."""
    body = {"prompt": [9], "max_tokens": 300, "temperature": 0, "stream": True} | more
    sent = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
    connection = socket.create_connection(served.running.listening.getsockname())
    connection.sendall(f"{head}{len(sent)}\r\n\r\n".encode() + sent)
    return connection


def cancelled(served: Served) -> float:
    """Requests that are counted so."""
    page = served.client.get("/metrics").text
    counted = re.findall(r"requests_total\{.*cancelled.*\} ([0-9.]+)", page)
    return sum(map(float, counted))


def running(served: Served) -> int:
    assert served.running.service is not None
    return served.running.service.worker.running


@pytest.mark.parametrize("where", ["decode", "prefill", "line"])
def test_nothing_is_decoded_for_a_client_that_has_left(
    served: Served, steps: Steps, where: str
) -> None:
    others = [ask(served)] if where == "line" else []
    if others:
        served.until(lambda: steps.rows == 1)
    prompt = [9] * (PROMPT if where == "prefill" else 1)
    before, late = steps.taken, steps.late
    leaving = ask(served, prompt=prompt)
    served.until(lambda: running(served) == 1 + len(others))
    served.until(lambda: steps.taken > before + (1 if where == "prefill" else 5))
    leaving.close()
    served.until(lambda: running(served) == len(others))
    # The step that runs when it is noticed, and the one that lets it go.
    assert steps.late - late <= 2
    assert steps.rows == len(others)
    assert steps.taken - before < 200
    for other in others:
        other.close()
    served.until(lambda: running(served) == 0 and steps.rows == 0)


def test_a_client_that_leaves_while_its_text_is_cut_up_leaves_its_place_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.running.service is not None
    worker, go, encode = served.running.service.worker, threading.Event(), Text.encode

    def held(text: Text, words: str) -> tuple[int, ...]:
        go.wait(20)
        return encode(text, words)

    monkeypatch.setattr(Text, "encode", held)
    before = cancelled(served)
    try:
        leaving = ask(served, prompt="the fox")
        served.until(lambda: worker.waiting_tokens > 0)
        leaving.close()
        served.until(lambda: worker.waiting_tokens == 0)
        assert not go.is_set()
        assert running(served) == 0
    finally:
        go.set()
    assert cancelled(served) == before + 1
