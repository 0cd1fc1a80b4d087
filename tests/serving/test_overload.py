"""Ten times more than a server can take: it turns away, and neither grows nor lies about when."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import pytest

from tests.serving.children import Child, child

SLOTS, QUEUE_TOKENS, TOKENS = 4, 900, 60
ROOM = SLOTS + QUEUE_TOKENS // (TOKENS + 1)  # requests at once, those that wait included
CLIENTS = 10 * ROOM
SECONDS = 20.0
GROWN_BYTES = 20 * 2**20
LONG_BODIES, LONG_BYTES = 50, 4_000_000


Found = list[tuple[int, float, str]]


async def crowd(url: str, *, clients: int, seconds: float, tokens: int = TOKENS) -> Found:
    """So many clients that ask again and again: statuses, seconds, what Retry-After said."""
    found: Found = []
    end = time.monotonic() + seconds
    body = {"prompt": [9], "max_tokens": tokens, "temperature": 0}

    async def one(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            begun = time.monotonic()
            answer = await client.post("/v1/completions", json=body)
            took = time.monotonic() - begun
            found.append((answer.status_code, took, answer.headers.get("retry-after", "")))
            await asyncio.sleep(0.25 if answer.status_code == 429 else 0.0)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as asks:
        await asyncio.gather(*(one(asks) for _ in range(clients)))
    return found


def crowded(url: str, clients: int, seconds: float) -> Found:
    """The same in a process of its own: what a client sees beside it is the server's time."""
    return asyncio.run(crowd(url, clients=clients, seconds=seconds))


@pytest.fixture
def served(target_folder: Path, tmp_path: Path) -> Any:
    settings = {"draft": "none", "max_slots": SLOTS, "queue_tokens": QUEUE_TOKENS}
    with child(target_folder, tmp_path, **settings) as server:
        yield server


@pytest.mark.slow
def test_ten_times_the_load_is_turned_away_and_the_memory_stays(served: Child) -> None:
    asyncio.run(crowd(served.url, clients=SLOTS, seconds=3.0))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as elsewhere:
        elsewhere.submit(crowded, served.url, CLIENTS, 3.0).result(timeout=90)
        before = served.memory_bytes()
        asking = elsewhere.submit(crowded, served.url, CLIENTS, SECONDS)
        # Too much for any room that is left, and so refused for as long as anybody waits.
        large = crowd(served.url, clients=1, seconds=SECONDS, tokens=QUEUE_TOKENS)
        beside = asyncio.run(large)
        found = asking.result(timeout=90)
    grown = served.memory_bytes() - before
    served.until_running(0)
    statuses = [status for status, _, _ in found]
    refused = [(took, retry) for status, took, retry in found + beside if status == 429]
    seen = [took for status, took, _ in beside if status == 429]
    shares = quantiles(seen, n=10, method="inclusive")
    print(
        f"{CLIENTS} clients, {SECONDS:.0f} s: {statuses.count(200)} answered, {len(refused)} "
        f"refused; a client beside them was refused {len(seen)} times, in "
        f"{1000 * shares[4]:.1f} ms in the middle and {1000 * shares[8]:.1f} in nine of ten; "
        f"{grown / 2**20:.1f} MiB more"
    )
    assert set(statuses) == {200, 429}
    assert statuses.count(200) > ROOM
    assert statuses.count(429) >= CLIENTS - ROOM  # whoever found no room was told at once
    assert all(retry.isdigit() and 1 <= int(retry) <= 60 for _, retry in refused)
    assert grown < GROWN_BYTES


@pytest.mark.slow
def test_long_bodies_at_a_full_queue_are_turned_away_unread(
    target_folder: Path, tmp_path: Path
) -> None:
    long = b'{"prompt": "' + b"x" * LONG_BYTES + b'"}'
    with child(target_folder, tmp_path, draft="none", max_slots=1, queue_tokens=900) as served:

        async def story() -> tuple[set[int], int]:
            limits = httpx.Limits(max_connections=LONG_BODIES + 2)
            async with httpx.AsyncClient(
                base_url=served.url, timeout=120, limits=limits, trust_env=False
            ) as client:
                # Minutes of work: nobody waits before it, so it is let in whatever it costs.
                body = {"prompt": [9], "max_tokens": 1000, "temperature": 0, "n": 128}
                held = asyncio.ensure_future(client.post("/v1/completions", json=body))
                async with asyncio.timeout(30):
                    while served.gauge("waiting_tokens") < 10_000:
                        await asyncio.sleep(0.05)
                before = most = served.memory_bytes()
                asking = asyncio.gather(
                    *(client.post("/v1/completions", content=long) for _ in range(LONG_BODIES))
                )
                while not asking.done():
                    most = max(most, served.memory_bytes())
                    await asyncio.sleep(0.01)
                held.cancel()
                await asyncio.gather(held, return_exceptions=True)
                return {answer.status_code for answer in await asking}, most - before

        statuses, grown = asyncio.run(story())
    print(f"{LONG_BODIES} bodies of {LONG_BYTES} bytes: {grown / 2**20:.1f} MiB more at most")
    assert statuses == {429}
    assert grown < LONG_BODIES * LONG_BYTES / 4


@pytest.mark.slow
def test_who_comes_back_when_told_finds_room(target_folder: Path, tmp_path: Path) -> None:
    settings = {"draft": "none", "max_slots": 2, "queue_tokens": 3200}
    body = {"prompt": [9], "max_tokens": 1000, "min_tokens": 1000, "temperature": 0}
    with child(target_folder, tmp_path, **settings) as served:

        async def story() -> tuple[int, float]:
            limits = httpx.Limits(max_connections=20)
            async with httpx.AsyncClient(
                base_url=served.url, timeout=120, limits=limits, trust_env=False
            ) as client:

                async def post() -> httpx.Response:
                    return await client.post("/v1/completions", json=body)

                async def filled() -> list[asyncio.Task[httpx.Response]]:
                    asked = []
                    for number in range(5):  # two of them run
                        asked.append(asyncio.ensure_future(post()))
                        while served.gauge("waiting_requests") < max(number - 1, 0):
                            await asyncio.sleep(0.001)
                    return asked

                await asyncio.gather(*await filled())  # work, for a rate to be known
                waiting = await filled()
                refused = await post()
                assert refused.status_code == 429
                begun, told = time.monotonic(), int(refused.headers["retry-after"])
                while not waiting[0].done() and not waiting[1].done():
                    await asyncio.sleep(0.02)
                took = time.monotonic() - begun
                assert (await post()).status_code == 200
                await asyncio.gather(*waiting)
                return told, took

        told, took = asyncio.run(story())
    print(f"told to come back in {told} s, there was room after {took:.1f} s")
    assert took / 3 - 1 <= told <= 3 * took + 1
