"""Many replicas at once: the slow, the lying, the gone and the one that comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict

import httpx
import pytest

from monitoring.looked import Looked, Reached
from monitoring.settings import Source
from monitoring.sources import SILENT_LOOKS, SILENT_SECONDS, Sources
from speculation.records import Counts, Exchange
from tests.monitoring.answering import Whole, answering

NOW = 1_800_000_000.0
ENGINE = "vllm 0.32.0"
ONE = Counts(10, 1, 40, 28, (10, 7, 5, 4), (7, 5, 4, 1))


def exchange(number: int, *, at: float = NOW, pair: str = "p-1") -> Exchange:
    return Exchange(
        f"r{number}", pair, "d" * 64, "head", 4, at - 0.5, 20, 0, ONE, 0.0, 0.1, 0.4, "stop"
    )


class Replica:
    """One server behind the transport. What it counts and logs can be changed, or broken."""

    def __init__(self) -> None:
        self.log: list[tuple[float, Exchange]] = []
        self.times = 1  # as often as it has counted ONE
        self.started: float | None = 5.0
        self.down = False
        self.asked: list[str] = []
        self.said: dict[str, str] = {}  # headers of the last request

    def serve(self, number: int, *, at: float = NOW) -> None:
        self.log.append((at, exchange(number, at=at)))
        self.times += 1

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        self.said = dict(request.headers)
        if self.down:
            raise httpx.ConnectError("refused")
        if request.url.path == "/admin/pair":
            served = {"pair": "p-1", "drafter": "head", "release": "d" * 64, "swaps": []}
            return httpx.Response(200, json=served)
        if request.url.path == "/admin/exchanges":
            since = float(request.url.params["since"])
            lines = [{"logged": at, **asdict(one)} for at, one in self.log if at > since]
            return httpx.Response(200, text="".join(json.dumps(one) + "\n" for one in lines))
        return httpx.Response(200, text=self.page())

    def page(self) -> str:
        labels = 'pair="p-1",drafter="head"'
        start = [] if self.started is None else [f"process_start_time_seconds {self.started}"]
        counted = {"rounds": 10, "plain_forwards": 1, "drafted_tokens": 40, "emitted_tokens": 28}
        lines = [
            f"paceline_{name}_total{{{labels}}} {n * self.times}" for name, n in counted.items()
        ]
        for name, numbers in (
            ("judged", ONE.judged_per_position),
            ("accepted", ONE.accepted_per_position),
        ):
            lines += [
                f'paceline_{name}_tokens_total{{{labels},position="{j}"}} {n * self.times}'
                for j, n in enumerate(numbers)
            ]
        return "\n".join([*start, *lines]) + "\n"


Replicas = dict[str, Replica]
Start = Callable[..., Sources]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[Sources] = []

    def starting(
        replicas: Replicas, reached: Reached | None = None, *, now: list[float] | None = None
    ) -> Sources:
        for one in begun:
            one.close()
        urls = tuple(f"http://{name}" for name in replicas)
        begun[:] = [
            Sources(
                {"all": Source(urls=urls)},
                reached or Reached(),
                headers={"authorization": "Bearer key"},
                clock=lambda: NOW if now is None else now[0],
                transport=answering(lambda r: replicas[r.url.host].answer(r)),
            )
        ]
        return begun[0]

    yield starting
    for one in begun:
        one.close()


def ids(looked: Looked) -> list[str]:
    return [one.id for one in looked.exchanges]


def kinds(looked: Looked) -> list[tuple[str, str]]:
    return [(one.source, one.kind) for one in looked.faults]


def test_replicas_requests_come_in_the_order_in_which_they_ended(start: Start) -> None:
    replicas = {"a": Replica(), "b": Replica()}
    sources = start(replicas)
    replicas["a"].serve(1, at=NOW - 30)
    replicas["a"].serve(3, at=NOW - 10)
    replicas["b"].serve(2, at=NOW - 20)
    assert ids(sources.look()) == ["r1", "r2", "r3"]
    assert ids(sources.look()) == []
    assert replicas["a"].said["authorization"] == "Bearer key"


def test_what_each_replica_counted_is_its_own_increase(start: Start) -> None:
    replicas = {"a": Replica(), "b": Replica()}
    sources = start(replicas)
    assert sources.look().increases == []
    replicas["b"].serve(1)
    (one,) = sources.look().increases
    assert (one.replica, one.pair, one.counts) == ("http://b", "p-1", ONE)


def test_a_replica_that_goes_away_and_comes_back_loses_nothing(start: Start) -> None:
    now = [NOW]
    replicas = {"a": Replica(), "b": Replica()}
    sources = start(replicas, now=now)
    sources.look()
    replicas["b"].down = True
    silent = []
    for _ in range(SILENT_LOOKS + 1):
        silent.append(kinds(sources.look()))
        now[0] += SILENT_SECONDS / SILENT_LOOKS
    replicas["b"].serve(1, at=now[0])
    assert silent[:-1] == [[]] * SILENT_LOOKS  # a swap or a restart is shorter
    assert silent[-1] == [("http://b", "source_silent")]
    replicas["b"].down = False
    looked = sources.look()
    assert (ids(looked), kinds(looked)) == (["r1"], [])
    assert [one.counts for one in looked.increases] == [ONE]


def test_a_server_that_was_started_anew_with_an_empty_log_is_read_on(start: Start) -> None:
    replicas = {"a": Replica()}
    sources = start(replicas)
    for number in range(3):
        replicas["a"].serve(number, at=NOW - 50 + number)
    sources.look()
    replicas["a"] = Replica()
    replicas["a"].started = 99.0
    replicas["a"].serve(7)
    looked = sources.look()
    assert ids(looked) == ["r7"]
    assert [one.counts for one in looked.increases] == [ONE + ONE]


def test_where_reading_had_come_to_survives_a_restart(start: Start) -> None:
    replicas = {"a": Replica()}
    first = start(replicas)
    replicas["a"].serve(1, at=NOW - 5)
    first.look()
    replicas["a"].serve(2)
    stored = json.loads(json.dumps(first.reached.to_json()))
    looked = start(replicas, Reached.from_json(stored)).look()
    assert ids(looked) == ["r2"]
    assert [one.counts for one in looked.increases] == [ONE]


def test_a_counter_that_goes_down_is_named_and_is_no_increase(start: Start) -> None:
    replicas = {"a": Replica()}
    replicas["a"].times = 9
    sources = start(replicas)
    sources.look()
    replicas["a"].times = 3
    looked = sources.look()
    assert (looked.increases, kinds(looked)) == ([], [("http://a", "source_faulty")])


class Bad(httpx.AsyncByteStream):
    """Never ends: says nothing, a byte at a time, or as much as is taken."""

    def __init__(self, how: str) -> None:
        self.how, self.sent = how, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self.how != "flood":
                await asyncio.sleep(60.0 if self.how == "hang" else 0.01)
            chunk = b"#" * (2**16 if self.how == "flood" else 1)
            self.sent += len(chunk)
            yield chunk


def test_one_that_hangs_drips_floods_packs_or_redirects_takes_nothing_from_the_others() -> None:
    good = {f"good{number}": Replica() for number in range(20)}
    bad = {how: Bad(how) for how in ("hang", "drip", "flood")}

    def answer(request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in good:
            return good[host].answer(request)
        if host == "packed":
            return httpx.Response(200, stream=Whole(b"x"), headers={"Content-Encoding": "gzip"})
        if host == "moved":
            return httpx.Response(302, headers={"Location": "http://good0/metrics"})
        return httpx.Response(200, stream=bad[host])

    hosts = [*good, *bad, "packed", "moved"]
    sources = Sources(
        {"all": Source(urls=tuple(f"http://{host}" for host in hosts))},
        Reached(),
        timeout_seconds=0.2,
        clock=lambda: NOW,
        transport=answering(answer),
    )
    for replica in good.values():
        replica.serve(1)
    seen, faulty = list[str](), set[str]()
    with sources:
        for _ in range(50):  # one, where the machine answers within 0.2 s
            looked = sources.look()
            seen += ids(looked)
            faulty |= {url for url, _ in kinds(looked)}
            if len(seen) == len(good):
                break
    assert len(seen) == len(good)
    assert faulty >= {f"http://{one}" for one in ("packed", "moved")}
    assert not faulty & {f"http://{one}" for one in good}


def test_a_vllm_server_is_watched_by_the_windows_between_two_looks() -> None:
    counted, asked = [1], list[str]()

    def page(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer t"
        asked.append(request.url.path)
        if request.url.path == "/version":
            return httpx.Response(200, json={"version": "0.32.0"})
        values = {"drafts": 100, "draft_tokens": 300, "accepted_tokens": 185}
        lines = [
            f'vllm:spec_decode_num_{name}_total{{model_name="m"}} {n * counted[0]}'
            for name, n in values.items()
        ]
        lines += [
            "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            f'{{model_name="m",position="{j}"}} {n * counted[0]}'
            for j, n in enumerate((80, 60, 45))
        ]
        return httpx.Response(200, text="\n".join(lines) + "\n")

    sources = Sources(
        {"v": Source("vllm", ("http://v",), pair="p-1", drafter="eagle3", draft_len=3)},
        Reached(),
        tokens={"vllm": "t"},
        clock=lambda: NOW,
        transport=answering(page),
    )
    with sources:
        assert sources.look().exchanges == []
        counted[0] = 3
        (one,) = sources.look().exchanges
    assert (one.pair, one.drafter, one.engine, one.outcome) == ("p-1", "eagle3", ENGINE, "window")
    assert one.counts.judged_per_position == (200, 160, 120)
    assert asked == ["/metrics", "/version", "/metrics"]


def test_a_sglang_server_is_shown_and_feeds_nothing() -> None:
    text = 'sglang:spec_accept_length{model_name="m"} 2.5\n'
    sources = Sources(
        {"s": Source("sglang", ("http://s",), pair="p-1")},
        Reached(),
        clock=lambda: NOW,
        transport=answering(lambda request: httpx.Response(200, text=text)),
    )
    with sources:
        looked = sources.look()
    assert [one.acceptance_length for one in looked.gauges] == [2.5]
    assert (looked.exchanges, looked.increases) == ([], [])
