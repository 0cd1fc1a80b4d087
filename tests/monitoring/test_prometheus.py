"""The query API of a Prometheus server: what is asked, and what of its answers is believed."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from monitoring.looked import Reached
from monitoring.pages import PageError
from monitoring.prometheus import query, readings
from monitoring.settings import Source
from monitoring.sources import Sources
from tests.monitoring.answering import answering

SOURCE = Source(
    "prometheus", ("http://p",), pair="p-1", drafter="eagle3", selector='job="v"', adapter="vllm"
)
NOW = 1_800_000_000.0
COUNTED = {
    ("vllm:spec_decode_num_drafts_total", None): 100,
    ("vllm:spec_decode_num_draft_tokens_total", None): 300,
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "0"): 80,
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "1"): 60,
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "2"): 45,
}


def matrix(times: dict[float, float], *, instance: str = "a:8000") -> list[dict[str, Any]]:
    """The series of one replica, which by each time has counted so often."""
    found = []
    for (name, position), n in COUNTED.items():
        labels = {"__name__": name, "instance": instance, "job": "v", "model_name": "m"}
        if position is not None:
            labels["position"] = position
        values = [[at, str(n * often)] for at, often in times.items()]
        found.append({"metric": labels, "values": values})
    return found


def answer(series: list[dict[str, Any]]) -> bytes:
    data = {"resultType": "matrix", "result": series}
    return json.dumps({"status": "success", "data": data, "warnings": ["slow"]}).encode()


def test_raw_samples_since_the_last_one_taken_are_asked_for() -> None:
    form = query(SOURCE, since=NOW - 30.0, now=NOW)
    assert form["query"].startswith('{__name__=~"(vllm:spec_decode_num_drafts|')
    assert form["query"].endswith(',job="v"}[150s]')
    assert query(SOURCE, since=0.0, now=NOW)["query"].endswith("[3720s]")  # an hour at most


def test_each_scrape_of_each_replica_is_a_page_the_oldest_first() -> None:
    body = answer(matrix({1.0: 1, 2.0: 2}) + matrix({1.5: 5}, instance="b:8000"))
    found = list(readings(body, SOURCE, since=1.0))
    assert [(replica, at) for replica, at, _ in found] == [("b:8000", 1.5), ("a:8000", 2.0)]
    assert found[1][2].readings[0].figures["accepted.2"] == 90


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[" * 100_000,
        b"[]",
        b'{"status": "error", "errorType": "bad_data", "error": "parse error"}',
        b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": [7]}}',
        answer([{"metric": {}, "values": [["x", "y"]]}]),
        answer([{"metric": {}, "values": 7}]),
    ],
    ids=["html", "deep", "list", "error", "vector", "number", "words", "values"],
)
def test_an_answer_that_is_none_is_named(body: bytes) -> None:
    with pytest.raises(PageError):
        list(readings(body, SOURCE, since=0.0))


def test_a_sample_that_is_no_number_is_passed_over() -> None:
    series = matrix({1.0: 1})
    series[0]["values"] += [[2.0, "NaN"], [3.0, "+Inf"]]
    assert [at for _, at, _ in readings(answer(series), SOURCE, since=0.0)] == [1.0]


def test_scrapes_become_windows_and_a_pause_is_caught_up_with() -> None:
    times = {NOW - 60.0: 1.0, NOW - 45.0: 2.0}
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/api/v1/query")
        asked.append(parse_qs(request.content.decode())["query"][0])
        return httpx.Response(200, content=answer(matrix(times)))

    now = [NOW - 44.0]
    sources = Sources(
        {"p": SOURCE},
        Reached(),
        clock=lambda: now[0],
        transport=answering(serve),
    )
    with sources:
        assert len(sources.look().exchanges) == 1
        # It restarted between two scrapes, while nobody looked.
        times |= {NOW - 30.0: 3.0, NOW - 15.0: 1.0, NOW: 2.0}
        now[0] = NOW
        looked = sources.look()
        assert [one.counts.rounds for one in looked.exchanges] == [100, 100, 100]
        assert [one.started for one in looked.exchanges] == [NOW - 30.0, NOW - 15.0, NOW]
        assert sources.look().exchanges == []
    assert looked.faults == []


@pytest.mark.parametrize("status", [400, 422, 503])
def test_a_query_that_is_refused_is_named(status: int) -> None:
    body = b'{"status": "error", "errorType": "bad_data", "error": "no such selector"}'
    transport = answering(lambda request: httpx.Response(status, content=body))
    with Sources({"p": SOURCE}, Reached(), clock=lambda: NOW, transport=transport) as sources:
        (fault,) = sources.look().faults
    assert (fault.kind, "no such selector" in fault.what) == ("source_faulty", True)
