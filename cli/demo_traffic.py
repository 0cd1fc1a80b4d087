"""Traffic of the demo: prompts through the OpenAI-compatible endpoint, and what each cost.

Knows HTTP and counts. The same prompts are asked of a plain server in turn, one request at a time,
so that both have the machine to themselves and see the same weather.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from speculation.records import Counts, Prompt, pool

SECONDS = 120.0  # for one answer


@dataclass(frozen=True, slots=True)
class Asked:
    """One answered request."""

    at: float  # when it ended, seconds since the epoch
    seconds: float  # as the client sees it
    pair: str
    counts: Counts

    @property
    def tokens(self) -> int:
        return self.counts.emitted


def ask(client: httpx.Client, prompt: Prompt, *, model: str, max_tokens: int) -> Asked:
    """One answer. Raises httpx.HTTPError where there is none."""
    body = {
        "model": model,
        "messages": [dict(message) for message in prompt.messages],
        "max_tokens": max_tokens,
        "temperature": 0.0,
    }
    begun = time.monotonic()
    answer = client.post("/v1/chat/completions", json=body)
    answer.raise_for_status()
    told: dict[str, Any] = answer.json()["usage"]["paceline"]
    counts = Counts.from_json({**told, "judged_per_position": told["judged_per_position"]})
    return Asked(time.time(), time.monotonic() - begun, told["pair"], counts)


@contextmanager
def endpoint(url: str) -> Iterator[tuple[httpx.Client, str]]:
    """A client of the server and the name of its model."""
    with httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as client:
        yield client, str(client.get("/v1/models").json()["data"][0]["id"])


def compare(
    served: str,
    plain: str,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    show: Callable[[Mapping[str, Any]], None],
    check: Callable[[], None],  # raises where a server is gone
) -> dict[str, Any]:
    """Ask both servers the same prompts in turn; `show` gets the figures so far."""
    ours: list[Asked] = []
    theirs: list[Asked] = []
    figures: dict[str, Any] = {}
    with endpoint(served) as (fast, model), endpoint(plain) as (slow, plain_model):
        for prompt in prompts:
            check()
            theirs.append(ask(slow, prompt, model=plain_model, max_tokens=max_tokens))
            ours.append(ask(fast, prompt, model=model, max_tokens=max_tokens))
            figures = {"requests": len(ours), **summary(ours, theirs)}
            show(figures)
    return figures


def summary(ours: Sequence[Asked], theirs: Sequence[Asked]) -> dict[str, Any]:
    """Pooled figures of both; rates over whole requests."""
    counts, plain = pool([a.counts for a in ours]), pool([a.counts for a in theirs])
    fast = counts.emitted / max(sum(a.seconds for a in ours), 1e-9)
    slow = plain.emitted / max(sum(a.seconds for a in theirs), 1e-9)
    return {
        "pair": ours[-1].pair,
        "alpha_hat": counts.acceptance,
        "acceptance_length": counts.acceptance_length,
        "forwards_per_request": counts.forwards / len(ours),
        "plain_forwards_per_request": plain.forwards / len(theirs),
        "tokens_per_second": fast,
        "plain_tokens_per_second": slow,
        "speedup": fast / slow,
    }


def plain_server(target: Path, port: int, home: Path) -> list[str]:
    """The command of a server that decodes `target` without a draft."""
    import sys

    command = [sys.executable, "-m", "cli.main", "serve", str(target), "--draft", "none"]
    return [*command, "--host", "127.0.0.1", "--port", str(port), "--home", str(home)]
