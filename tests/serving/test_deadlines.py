"""Time runs from a request's arrival, in the line as in the engine, and what failed comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitoring.exchanges import read_exchanges
from serving import probing
from serving.settings import ServeSettings
from speculation.engine import Engine
from speculation.sequence import Event
from tests.serving.served import Served, serving

COMPLETIONS = "/v1/completions"


@pytest.fixture
def served(target_folder: Path, tmp_path: Path) -> Iterator[Served]:
    settings = ServeSettings(
        home=tmp_path, target=target_folder, draft="none", max_slots=1, deadline_seconds=1.0
    )
    with serving(settings) as server:
        yield server


def test_who_waits_gets_a_status_and_who_has_begun_an_event(served: Served) -> None:
    go, begun, engine = threading.Event(), threading.Event(), served.loaded.engine
    step, lines = engine.step, list[str]()

    def held() -> list[Event]:
        begun.wait(10)
        if lines:  # the first byte is there
            go.wait(10)
        return step()

    engine.step = held  # type: ignore[method-assign]  # a test's brake
    body: dict[str, Any] = {"prompt": [9], "max_tokens": 900, "temperature": 0}

    def stream() -> None:
        with httpx.stream(
            "POST", served.url + COMPLETIONS, json=body | {"stream": True}, timeout=30
        ) as answer:
            for line in answer.iter_lines():
                lines.extend([line] if line else [])

    reading = threading.Thread(target=stream)
    reading.start()
    page = served.client.get
    served.until(lambda: "running_requests 1.0" in page("/metrics").text)
    begun.set()
    waits = served.client.post(COMPLETIONS, json=body)
    reading.join(10)
    assert waits.status_code == 504
    assert waits.json()["error"]["type"] == "timeout_error"
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["type"] == "timeout_error"
    assert len(lines) > 1
    go.set()
    served.until(lambda: "running_requests 0.0" in page("/metrics").text)
    # Metrics and the log have the same word for it.
    ended = [line for line in page("/metrics").text.splitlines() if "requests_total{" in line]
    assert all('outcome="deadline"' in line and line.endswith(" 2.0") for line in ended)
    exchanges = list(read_exchanges(served.running.settings.home / "serving" / "exchanges"))
    assert [exchange.outcome for exchange in exchanges] == ["deadline"] * 2
    assert min(exchange.counts.emitted for exchange in exchanges) == 0  # it never had a slot


def test_a_server_whose_steps_fail_is_not_ready_and_comes_back_by_itself(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "FIRST_PAUSE_SECONDS", 0.02)
    step = Engine.step

    def fails(engine: Engine) -> list[Event]:
        raise RuntimeError("broken")

    def ask() -> int:
        return served.client.post(COMPLETIONS, json={"prompt": "x", "max_tokens": 2}).status_code

    monkeypatch.setattr(Engine, "step", fails)
    assert [ask() for _ in range(3)] == [500] * 3
    get = served.client.get
    served.until(lambda: get("/health/ready").status_code == 503)
    assert get("/health/live").status_code == 200
    assert ask() == 503
    monkeypatch.setattr(Engine, "step", step)
    served.ready()
    assert ask() == 200


def test_a_server_whose_engine_has_died_is_neither_live_nor_ready(
    target_folder: Path, tmp_path: Path
) -> None:
    with serving(ServeSettings(home=tmp_path, target=target_folder, draft="none")) as served:
        assert served.running.service is not None
        served.running.service.worker.stop()
        answer = served.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1})
        assert answer.status_code == 503
        for path in ("/health/live", "/health/ready"):
            answer = served.client.get(path)
            assert answer.status_code == 503
            assert "thread has ended" in answer.json()["why"]
