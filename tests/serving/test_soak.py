"""Ten thousand requests of every kind: memory and handles stay where they are."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.children import Child, child
from tests.serving.leaking import Look, slope

REQUESTS, EVERY, CLIENTS = 10_000, 500, 12
LEARNING = 2_000  # requests in which caches and pools fill
SLOPE_BYTES = 2**20  # at most, a thousand requests
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "returns", "true")


def body(random_: random.Random) -> tuple[str, dict[str, Any]]:
    """A request of one of many kinds, and where it goes."""
    text = " ".join(random_.choices(WORDS, k=random_.randint(1, 60)))
    asked: dict[str, Any] = {"max_tokens": random_.randint(1, 12)}
    asked |= random_.choice(
        [
            {"temperature": 0},
            {"seed": random_.randint(0, 9)},
            {"n": 2},
            {"stop": ["fox", " dog"]},
            {"temperature": 0.5, "top_p": 0.9, "logit_bias": {"9": 3}},
            {"max_tokens": -1},  # refused
            {"unheard_of": 1},  # refused
        ]
    )
    asked |= {"stream": True} if random_.random() < 0.4 else {}
    if random_.random() < 0.5:
        return "/v1/completions", asked | {"prompt": text}
    return "/v1/chat/completions", asked | {"messages": [{"role": "user", "content": text}]}


async def ask(client: httpx.AsyncClient, random_: random.Random) -> int:
    path, asked = body(random_)
    async with client.stream("POST", path, json=asked) as answer:
        if asked.get("stream") and random_.random() < 0.2:
            return answer.status_code  # it leaves
        await answer.aread()
        return answer.status_code


async def story(served: Child) -> tuple[list[Look], set[int]]:
    """Memory and handles as the requests went; the statuses met."""
    looks, statuses, left = list[Look](), set[int](), iter(range(REQUESTS))

    async def one(number: int) -> None:
        random_ = random.Random(number)
        async with httpx.AsyncClient(base_url=served.url, timeout=120, trust_env=False) as client:
            for done in left:
                statuses.add(await ask(client, random_))
                if done % EVERY == 0:
                    looks.append(Look(done, served.memory_bytes(), served.files()))

    await asyncio.gather(*(one(number) for number in range(CLIENTS)))
    return looks, statuses


@pytest.mark.soak
@pytest.mark.parametrize("draft", ["ngram", "head"])
def test_ten_thousand_requests_leave_nothing_behind(
    target_folder: Path, draft_folder: Path, tmp_path: Path, draft: str
) -> None:
    settings = {"draft": str(draft_folder) if draft == "head" else draft, "max_slots": 6}
    begun = time.monotonic()
    with child(target_folder, tmp_path, **settings, max_context=300, capture=True) as served:
        looks, statuses = asyncio.run(story(served))
        served.until_running(0)
        files = served.files()
    found = slope(looks, after=LEARNING)
    print(f"{draft}: {REQUESTS} requests, {time.monotonic() - begun:.0f} s: {found}")
    assert statuses == {200, 400}
    assert found.memory_bytes * 1000 < SLOPE_BYTES
    assert abs(found.handles) * 1000 < 0.5
    assert files <= min(look.handles for look in found.looks)  # the clients' connections are gone
