"""The HTTP side: hostile bodies, the admin side, limits, clients that leave, engines that fail."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitoring.exchanges import read_exchanges
from serving import app
from serving.accounting import Accounting
from serving.choices import Choice
from serving.loading import Host
from serving.settings import ServeSettings
from serving.text import Text
from speculation.engine import Engine
from speculation.records import Exchange
from tests.serving.served import Served, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDLESS = [9]  # greedily followed for hundreds of tokens by no end of turn


def metric(served: Served, name: str, **labels: str) -> float:
    page = served.client.get("/metrics").text
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def running(served: Served, count: int) -> bool:
    return metric(served, "paceline_running_requests") == count


@pytest.fixture
def own(target_folder: Path, tmp_path: Path) -> Callable[..., ServeSettings]:
    """Settings of a server that a test may spoil."""

    def made(**more: Any) -> ServeSettings:
        return ServeSettings(home=tmp_path, target=target_folder, **more)

    return made


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/admin/exchanges?since=soon", 400),
        ("GET", "/admin/exchanges?since=nan", 400),
        ("POST", "/admin/swap", 409),
    ],
)
def test_a_wrong_turn_is_an_error_that_clients_can_read(
    server: Served, method: str, path: str, status: int
) -> None:
    answer = server.client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_body_that_is_too_long_is_refused_whether_it_says_so_or_not(server: Served) -> None:
    long = b"x" * 300_000
    assert server.client.post(CHAT, content=long).status_code == 413
    pieces = (long[start : start + 1000] for start in range(0, len(long), 1000))
    assert server.client.post(CHAT, content=pieces).status_code == 413


def test_the_admin_side_answers_no_web_page(server: Served) -> None:
    headers = {"origin": "http://example.org"}
    assert server.client.get("/admin/pair", headers=headers).status_code == 403
    forwarded = {"x-forwarded-for": "203.0.113.9"}
    assert server.client.get("/admin/pair", headers=forwarded).status_code == 403


def test_what_was_served_is_in_the_log_and_in_the_metrics(server: Served) -> None:
    before = metric(server, "paceline_emitted_tokens_total")
    answers = [
        server.client.post(COMPLETIONS, json={"prompt": "the fox", "max_tokens": n}).json()
        for n in (3, 5, 7)
    ]
    lines = server.client.get("/admin/exchanges").text.splitlines()
    stored = {line["id"]: line for line in map(json.loads, lines)}
    for answer in answers:
        line, counts = stored[answer["id"]], answer["usage"]["paceline"]
        assert line["counts"]["rounds"] == counts["rounds"]
        assert line["prompt_ids"] is line["completion_ids"] is None
        assert Exchange.from_json(line).counts.emitted == answer["usage"]["completion_tokens"]
    emitted = sum(answer["usage"]["completion_tokens"] for answer in answers)
    assert metric(server, "paceline_emitted_tokens_total") == before + emitted
    since = stored[answers[1]["id"]]["logged"]
    later = server.client.get("/admin/exchanges", params={"since": since}).text.splitlines()
    assert [json.loads(line)["id"] for line in later] == [answers[2]["id"]]


def test_no_word_of_a_prompt_reaches_the_log_the_metrics_or_the_disk(
    own: Callable[..., ServeSettings],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("DEBUG")
    secret = "xylophone"
    body = {"prompt": secret, "max_tokens": 3}

    def fails(*_: object, **__: object) -> Any:
        raise RuntimeError(secret)

    with serving(own(draft="none")) as served:
        said = [
            served.client.post(COMPLETIONS, json=body | more)
            for more in ({"stop": secret}, {"seed": secret}, {"max_tokens": 5000})
        ]
        for owner, name in (
            (app, "read_body"),
            (Text, "encode"),
            (Engine, "submit"),
            (Engine, "step"),
            (Choice, "take"),
            (Accounting, "ended"),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fails)
                said.append(served.client.post(COMPLETIONS, json=body))
        with monkeypatch.context() as patch:
            patch.setattr(served.loaded.text.tokenizer, "apply_chat_template", fails)
            messages = [{"role": "user", "content": secret}]
            said.append(served.client.post(CHAT, json={"messages": messages}))
        assert served.running.service is not None
        admission = served.running.service._admission
        with monkeypatch.context() as patch:
            soon = replace(served.running.settings, deadline_seconds=0.1)
            patch.setattr(admission, "_settings", soon)
            served.slow(0.02)
            said.append(served.client.post(COMPLETIONS, json=body | {"max_tokens": 100}))
        host = httpx.URL(served.url)
        leaving = http.client.HTTPConnection(host.host, host.port or 0)
        leaving.request("POST", COMPLETIONS, json.dumps(body | {"max_tokens": 900}))
        served.until(partial(running, served, 1))
        leaving.sock.shutdown(socket.SHUT_RDWR)
        leaving.close()
        served.until(partial(running, served, 0))
        pages = [served.client.get(path).text for path in ("/metrics", "/admin/pair")]
    assert [answer.status_code for answer in said] == [
        *(200, 400, 400),
        *(500, 500, 500, 500, 500, 200),
        *(400, 504),
    ]
    assert caplog.text.count("RuntimeError") >= 6  # each fault was told, by its kind
    assert secret not in caplog.text
    assert not any(secret in page for page in pages)
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"deadline" in content for content in stored)
    assert not any(secret.encode() in content for content in stored)


def test_a_request_is_counted_once_whatever_it_asked_for_and_however_it_ends(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "paceline_requests_total"
    before, lines = (
        metric(server, name),
        len(server.client.get("/admin/exchanges").text.splitlines()),
    )
    several = {"prompt": ["the fox", "a dog"], "n": 2, "max_tokens": 2}
    assert server.client.post(COMPLETIONS, json=several).status_code == 200
    assert metric(server, name) == before + 1
    assert len(server.client.get("/admin/exchanges").text.splitlines()) == lines + 4
    errors = metric(server, name, outcome="error")

    def fails(raw: bytes) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(app, "read_body", fails)
    assert server.client.post(COMPLETIONS, json=several).status_code == 500
    assert metric(server, name, outcome="error") == errors + 1
    assert metric(server, name) == before + 2


def test_token_ids_are_kept_only_where_capture_is_on(
    own: Callable[..., ServeSettings], tmp_path: Path
) -> None:
    with serving(own(capture=True)) as served:
        body = {"prompt": [5, 6, 7], "max_tokens": 4, "logprobs": 0}
        answer = served.client.post(COMPLETIONS, json=body).json()
    (exchange,) = read_exchanges(tmp_path / "serving" / "exchanges")
    assert exchange.prompt_ids == (5, 6, 7)
    assert len(exchange.completion_ids or ()) == answer["usage"]["completion_tokens"]


def test_a_client_that_leaves_frees_its_slot(own: Callable[..., ServeSettings]) -> None:
    with serving(own(max_slots=1, draft="none", max_context=1000)) as served:
        served.slow(0.005)
        body = {"prompt": ENDLESS, "max_tokens": 900, "temperature": 0}
        host = httpx.URL(served.url)
        connection = http.client.HTTPConnection(host.host, host.port or 0)
        connection.request("POST", COMPLETIONS, json.dumps(body))
        served.until(partial(running, served, 1))
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        begun = time.monotonic()
        answer = served.client.post(COMPLETIONS, json={"prompt": "the fox", "max_tokens": 2})
        assert answer.status_code == 200
        assert time.monotonic() - begun < 1.0
        assert metric(served, "paceline_requests_total", outcome="cancelled") == 1
        log = served.running.settings.home / "serving" / "exchanges"
        outcomes = {exchange.outcome: exchange for exchange in read_exchanges(log)}
        assert outcomes["cancelled"].counts.emitted < 900


def test_a_full_queue_is_said_at_once_and_when_to_come_back(
    own: Callable[..., ServeSettings],
) -> None:
    answers: list[httpx.Response] = []

    def post(served: Served, tokens: int) -> None:
        body = {"prompt": ENDLESS, "max_tokens": tokens, "temperature": 0}
        answers.append(httpx.post(served.url + COMPLETIONS, json=body, timeout=60))

    with serving(own(max_slots=1, draft="none", max_context=1000, queue_tokens=40)) as served:
        served.slow(0.01)
        threads = [threading.Thread(target=post, args=(served, n)) for n in (40, 20)]
        for count, thread in enumerate(threads, start=1):
            thread.start()
            served.until(partial(running, served, count))
        begun = time.monotonic()
        refused = served.client.post(COMPLETIONS, json={"prompt": [9], "max_tokens": 20})
        took = time.monotonic() - begun
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n"
        host = httpx.URL(served.url)
        with socket.create_connection((host.host, host.port or 0), timeout=10) as long:
            long.sendall(head.encode())
            status = long.makefile("rb").readline()  # before a byte of its body is there
        for thread in threads:
            thread.join()
        assert metric(served, "paceline_requests_total", outcome="rejected") == 2
    assert b" 429 " in status
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "queue_full"
    assert took < 0.5  # at rest about 5 ms; this machine may be busy with other things
    assert [answer.status_code for answer in answers] == [200, 200]


def test_a_server_says_that_it_drains_and_takes_nothing_more(
    own: Callable[..., ServeSettings],
) -> None:
    with serving(own()) as served:
        assert served.client.post("/admin/drain").status_code == 202
        refused = served.client.post(COMPLETIONS, json={"prompt": "the fox", "max_tokens": 1})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert metric(served, "paceline_requests_total", outcome="unavailable") == 1
        assert served.client.get("/health/ready").status_code == 503
        assert served.client.get("/health/live").status_code == 200


def test_a_server_is_not_ready_before_it_has_loaded(
    own: Callable[..., ServeSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    load = Host.load

    def slowly(folder: Path, settings: ServeSettings) -> Any:
        go.wait(20)
        return load(folder, settings)

    monkeypatch.setattr(Host, "load", slowly)
    with serving(own(), wait=False) as served:
        assert served.client.get("/health/ready").status_code == 503
        assert served.client.get("/health/live").status_code == 200
        refused = served.client.post(COMPLETIONS, json={"prompt": "the fox", "max_tokens": 1})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        go.set()
        served.ready()


def test_a_full_disk_costs_the_log_and_not_the_answer(
    own: Callable[..., ServeSettings], tmp_path: Path
) -> None:
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "exchanges").write_text("in the way")
    with serving(own()) as served:
        answer = served.client.post(COMPLETIONS, json={"prompt": "the fox", "max_tokens": 2})
        assert answer.status_code == 200
