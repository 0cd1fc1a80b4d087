"""The operator's verbs: another drafter and K, a drain and its undoing, the log, and webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from evaluation.started_with import TOLD, started_with
from monitoring import exchanges
from serving.settings import ServeSettings
from tests.serving.served import Served, serving

SECRET = "h" * 20
BODY = {"prompt": "the fox", "max_tokens": 12, "temperature": 0}


@pytest.fixture(scope="module")
def operated(
    target_folder: Path, draft_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    settings = ServeSettings(
        home=tmp_path_factory.mktemp("operated"),
        target=target_folder,
        draft=str(draft_folder),
        max_slots=2,
        max_context=300,
        hook_secret=SECRET,
    )
    with serving(settings) as served:
        yield served


def told(served: Served, **body: object) -> dict[str, Any]:
    answer = served.client.post("/v1/completions", json=BODY | body)
    assert answer.status_code == 200, answer.text
    usage: dict[str, Any] = answer.json()["usage"]["paceline"]
    return usage


def labels(served: Served, name: str, **wanted: str) -> dict[str, str]:
    """Of the last sample of that name that has those wanted."""
    return [
        sample.labels
        for family in text_string_to_metric_families(served.client.get("/metrics").text)
        for sample in family.samples
        if sample.name == name and wanted.items() <= sample.labels.items()
    ][-1]


def stored(served: Served, **query: object) -> list[dict[str, Any]]:
    lines = served.client.get("/admin/exchanges", params={k: str(v) for k, v in query.items()})
    return [json.loads(line) for line in lines.text.splitlines()]


def test_it_is_told_how_the_server_was_started(operated: Served) -> None:
    told = started_with(operated.client.get("/admin/pair").json())
    assert told.keys() == TOLD.keys(), "two measurements are held against each other by it"
    assert (told["max_slots"], told["max_context"], told["adapters"]) == (2, 300, {})
    assert (told["dtype"], told["device"]) == ("float32", "cpu")
    assert told["threads"] >= 1


def test_another_drafter_and_k_serve_from_then_on(operated: Served) -> None:
    try:
        before = told(operated, seed=1)
        turned = operated.client.patch("/admin/pair", json={"drafter": "ngram", "draft_len": 2})
        assert turned.status_code == 200
        shown = {name: turned.json()[name] for name in ("drafter", "draft_len", "adaptive")}
        assert shown == {"drafter": "ngram", "draft_len": 2, "adaptive": False}
        after = told(operated)
        assert (before["drafter"], after["drafter"]) == ("head", "ngram")
        shown = labels(operated, "paceline_served")
        assert (shown["pair"], shown["drafter"]) == (after["pair"], "ngram")
        assert after["pair"] != turned.json()["pair"]  # prompt lookup is no part of the pair's own
        operated.client.post("/v1/completions", json={})
        refused = labels(operated, "paceline_requests_total", outcome="invalid")
        assert (refused["pair"], refused["drafter"]) == (after["pair"], "ngram")
        assert after["draft_len"] == 2
        assert len(after["judged_per_position"]) <= 2
        off = operated.client.patch("/admin/pair", json={"drafter": "none"})
        assert off.json()["drafter"] == "none"
        assert told(operated)["rounds"] == 0
    finally:
        back = operated.client.patch("/admin/pair", json={"drafter": "head", "draft_len": None})
    assert (back.json()["drafter"], back.json()["adaptive"]) == ("head", True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"drafter": "eagle"}', "one of head, ngram, none"),
        (b'{"drafter": 1}', "the name of one"),
        (b'{"draft_len": 17}', "0 to 16"),
        (b'{"draft_len": -1}', "0 to 16"),
        (b'{"draft_len": true}', "a whole number"),
        (b'{"draft_len": 2.5}', "a whole number"),
        (b'{"k": 2}', "'k' is not known"),
        (b"[]", "a JSON object"),
        (b"\xff", "a JSON object"),
        (b"[" * 100_000, "a JSON object"),
    ],
)
def test_a_turn_that_cannot_be_made_changes_nothing_and_says_why(
    operated: Served, body: bytes, said: str
) -> None:
    before = operated.client.get("/admin/pair").json()
    answer = operated.client.patch("/admin/pair", content=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    after = operated.client.get("/admin/pair").json()
    assert (after["drafter"], after["draft_len"]) == (before["drafter"], before["draft_len"])


def test_a_drain_can_be_undone_until_the_process_is_to_end(
    target_folder: Path, tmp_path: Path
) -> None:
    with serving(ServeSettings(home=tmp_path, target=target_folder)) as served:
        assert served.client.post("/admin/drain").json() == {"draining": True, "running": 0}
        assert served.client.post("/v1/completions", json=BODY).status_code == 503
        assert served.client.delete("/admin/drain").json()["draining"] is False
        assert told(served)["drafter"] == "ngram"
        assert served.running.service is not None
        served.running.service.draining = served.running.service.ending = True  # as by SIGTERM
        refused = served.client.delete("/admin/drain")
        assert refused.status_code == 409
        assert "told to end" in refused.json()["error"]["message"]


def test_the_log_is_read_in_pages_and_deleted_line_by_line(operated: Served) -> None:
    ids = []
    for _ in range(4):
        answer = operated.client.post("/v1/completions", json=BODY)
        ids.append(answer.json()["id"])
    whole = [line for line in stored(operated) if line["id"] in ids]
    assert [line["id"] for line in whole] == ids
    since = whole[0]["logged"]
    assert [line["id"] for line in stored(operated, since=since, limit=2)] == ids[1:3]
    deleted = operated.client.delete("/admin/exchanges", params={"before": whole[2]["logged"]})
    assert deleted.json()["deleted"] >= 2
    assert [line["id"] for line in stored(operated)] == ids[2:]
    assert told(operated)
    assert len(stored(operated)) == 3


def test_requests_are_answered_and_logged_while_the_log_is_deleted(
    operated: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(operated)
    go, begun, parsed = threading.Event(), threading.Event(), exchanges._parsed

    def slowly(line: bytes) -> dict[str, Any] | None:
        begun.set()
        go.wait(20)
        return parsed(line)

    monkeypatch.setattr(exchanges, "_parsed", slowly)
    found: list[httpx.Response] = []
    url, query = f"{operated.url}/admin/exchanges", {"before": str(time.time() + 1000)}
    asking = threading.Thread(
        target=lambda: found.append(httpx.delete(url, params=query, timeout=30))
    )
    asking.start()
    assert begun.wait(20)
    try:
        answer = httpx.post(f"{operated.url}/v1/completions", json=BODY, timeout=10)
    finally:
        go.set()
        asking.join(20)
    assert answer.status_code == 200
    assert found[0].json()["deleted"] >= 1
    assert [line["id"] for line in stored(operated)] == [answer.json()["id"]]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/exchanges?limit=0"),
        ("GET", "/admin/exchanges?limit=many"),
        ("GET", "/admin/exchanges?limit=" + "9" * 5000),
        ("DELETE", "/admin/exchanges"),
        ("DELETE", "/admin/exchanges?before=inf"),
        ("DELETE", "/admin/exchanges?before=yesterday"),
    ],
)
def test_a_page_or_a_deletion_that_is_not_meant_is_refused(
    operated: Served, method: str, path: str
) -> None:
    answer = operated.client.request(method, path)
    assert answer.status_code == 400
    assert "wanted" in answer.json()["error"]["message"]


def test_a_signed_webhook_hurries_once_and_another_never(
    operated: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    assert operated.running.service is not None
    monkeypatch.setattr(operated.running.service, "nudge", lambda: looked.append(time.time()))
    body, sent = b'{"entity": "model_version_alias"}', f"{time.time():.0f}"
    digest = hmac.new(SECRET.encode(), f"d-1.{sent}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "x-mlflow-signature": "v1," + base64.b64encode(digest).decode(),
        "x-mlflow-delivery-id": "d-1",
        "x-mlflow-timestamp": sent,
        "origin": "https://registry.example",  # it stands behind no door
        "host": "models.example",
    }
    for hurried in (True, False):
        answer = operated.client.post("/hooks/registry", content=body, headers=headers)
        assert (answer.status_code, answer.json()) == (202, {"hurried": hurried})
    forged = operated.client.post("/hooks/registry", content=body + b" ", headers=headers)
    assert forged.status_code == 401
    assert len(looked) == 1


def test_the_gauges_say_what_is_so_now(operated: Served) -> None:
    page = operated.client.get("/metrics").text
    samples = {
        sample.name: sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["paceline_ready"].value == 1
    assert samples["paceline_running_requests"].value == 0
    assert samples["paceline_waiting_tokens"].value == 0
    served = samples["paceline_served"].labels
    assert served["pair"] == operated.loaded.pair
    assert (served["drafter"], served["verified"]) == ("head", "false")


def test_what_an_operator_does_is_in_the_log_and_what_is_read_is_not(
    operated: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "paceline.serving")
    client = operated.client
    client.patch("/admin/pair", json={"drafter": "ngram", "draft_len": 3}).raise_for_status()
    client.patch("/admin/pair", json={"drafter": "head", "draft_len": None}).raise_for_status()
    for method, path in (
        ("GET", "/admin/pair"),
        ("GET", "/admin/exchanges"),
        ("POST", "/admin/drain"),
        ("DELETE", "/admin/drain"),
        ("DELETE", "/admin/exchanges?before=1"),
    ):
        client.request(method, path).raise_for_status()
    assert [line for line in caplog.messages if line.startswith("somebody")] == [
        'somebody on this host turned drafter to "ngram", draft_len to 3',
        'somebody on this host turned drafter to "head", draft_len to null',
        "somebody on this host began a drain",
        "somebody on this host ended the drain",
        "somebody on this host deleted 0 exchanges from before 1.0",
    ]


def test_without_a_secret_there_is_no_webhook(server: Served) -> None:
    assert server.client.post("/hooks/registry").status_code == 404
