"""A trial server over a toy language, with real HTTP, real rounds and honest counts.

The target is a rule: what may follow depends on the prompt and the last two words, with
log-probabilities. Now and then the two best words are nearly equal, and then each path (plain in a
batch, plain alone, speculative) may round either way, as bf16 does. A draft knows the target's word
with a given chance. `fault` breaks the speculative path in a way that serving code breaks.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from evaluation.endpoints import free_port

WORDS = [f"w{number}" for number in range(40)]
END = "<end>"
PACE = 4  # K where it is left to the server
COLD = "ignores_temperature"  # a fault of drafts' requests without a seed alone
FAULTS = ("accepts_what_it_should_not", "loses_a_word", "says_a_word_twice", "stale_cache", "ends")
Ranked = list[tuple[str, float]]


@dataclass
class Fake:
    """How the server behaves. Change it between or during requests."""

    knows: Mapping[str, float]  # arm to the chance that its draft proposes the target's word
    fault: str | None = None
    rounding: bool = True
    forward_seconds: float = 0.02  # on a clock of its own, which decoding moves
    delay_seconds: float = 0.002  # for real, so that requests overlap
    now: float = 0.0
    url: str = ""
    speculative_cost: float = 1.2  # of a forward that verifies, over a plain one
    release: str = "release-1"
    models: tuple[str, ...] = ("toy",)  # and its adapters
    drips: bool = False  # a stream that keeps its connection and says nothing
    deaf: bool = False  # answers by the target whichever model is asked for
    pairs: dict[str, str] = field(default_factory=dict)
    busy: int = 0  # requests to answer with 429, each to come back in 7 s
    told: dict[str, Any] = field(default_factory=dict)  # of what it was started with
    key: str = ""  # wanted of everybody
    refuse_after: int | None = None  # answer 503 from this request on
    fail_every: int = 0  # answer every so-manieth request with 500
    fails: int = 0  # requests to answer with 500
    refuses: str = ""  # a question that gets 400
    asked: int = 0
    looks: int = 0  # at the clock
    lie: bool = False  # claims to have accepted twice what it did
    answered: int = 0
    most_at_once: int = 0
    at_once: int = 0
    draws: Counter[tuple[str, str]] = field(default_factory=Counter)  # without a seed

    def clock(self) -> float:
        self.looks += 1
        return self.now

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "no key"}}, 401)
        if self.busy:
            self.busy -= 1
            return JSONResponse({"error": {"message": "full"}}, 429, {"retry-after": "7"})
        if self.refuse_after is not None and self.answered >= self.refuse_after:
            return JSONResponse({"error": {"message": "shutting down"}}, 503)
        self.asked += 1
        if self.fail_every and self.asked % self.fail_every == 0:
            return JSONResponse({"error": {"message": "a fault"}}, 500)
        if self.fails:
            self.fails -= 1
            return JSONResponse({"error": {"message": "a hiccup"}}, 500)
        if body["messages"][-1]["content"] == self.refuses:
            return JSONResponse({"error": {"message": f"{self.refuses} is too long"}}, 400)
        self.answered += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            arm, draft_len = body["paceline"]["arm"], body["paceline"].get("draft_len", PACE)
            if arm not in self.knows and arm != "none":
                return JSONResponse({"error": {"message": f"unknown arm {arm!r}"}}, 400)
            answer = self.decode(body, arm, 0 if arm == "none" else draft_len)
            await asyncio.sleep(self.delay_seconds)
            if body.get("stream"):
                return StreamingResponse(
                    self.events(self.body(body, arm, draft_len, answer)),
                    media_type="text/event-stream",
                )
            self.now += answer["seconds"]
            return JSONResponse(self.body(body, arm, draft_len, answer))
        finally:
            self.at_once -= 1

    async def events(self, whole: dict[str, Any]) -> AsyncIterator[bytes]:
        """The answer as a stream: its first word, the rest, its usage."""
        while self.drips:
            yield b": still here\n\n"
            await asyncio.sleep(0.02)
        choice, told = whole["choices"][0], whole["usage"]["paceline"]
        words = choice["message"]["content"].partition(" ")
        for seconds, piece in zip(
            (told["prefill_seconds"], told["decode_seconds"]),
            (words[0], words[1] + words[2]),
            strict=True,
        ):
            self.now += seconds
            looks = self.looks
            yield event({"choices": [{"index": 0, "delta": {"content": piece}}], "usage": None})
            for _ in range(100):  # so that its reader sees when it came, before decoding goes on
                if self.looks > looks or not piece:
                    break
                await asyncio.sleep(0.001)
        end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield event({"choices": [end], "usage": None})
        yield event({"choices": [], "usage": whole["usage"]})
        yield b"data: [DONE]\n\n"

    def decode(self, body: Mapping[str, Any], arm: str, draft_len: int) -> dict[str, Any]:
        prompt = body["messages"][-1]["content"]
        seed = self.seed(body, arm) if body["temperature"] > 0 else 0
        path = f"{arm}/{'batched' if body.get('logprobs') else 'alone'}/{seed}"
        language = Language(prompt, path if self.rounding else None, seed)
        luck = Random(f"{prompt}/{arm}/{seed}")
        words: list[str] = []
        entries: list[Ranked] = []
        judged, accepted = [0] * draft_len, [0] * draft_len
        rounds = plain = drafted = 0
        limit = body["max_tokens"]
        context: list[str] = []  # what the target believes was said: a stale cache differs from it
        while len(words) < limit and END not in words:
            block: list[str] = []
            ranked_block: list[Ranked] = []
            asked = 0 if not words else min(draft_len, limit - len(words) - 1)
            rejected = None
            for place in range(asked + 1):
                ranked = language.ranked(context + block)
                word = ranked[0][0]
                if place < asked:
                    judged[place] += 1
                    knows = luck.random() < self.knows[arm]
                    proposal = word if knows else luck.choice([w for w in WORDS if w != word])
                    slip = self.fault == "accepts_what_it_should_not" and luck.random() < 0.1
                    if proposal == word or slip:
                        accepted[place] += 1
                        block.append(proposal)
                        ranked_block.append(ranked)
                        if proposal == END:
                            break
                        continue
                    rejected = proposal
                block.append(word)
                ranked_block.append(ranked)
                break
            if asked:
                rounds += 1
                reached = sum(1 for _ in block)
                drafted += reached if block[-1] == END and reached <= asked else asked
            else:
                plain += 1
            context += block
            if rejected is not None and self.fault == "stale_cache" and luck.random() < 0.2:
                context[-1] = rejected
            said, ranks = list(block), list(ranked_block)
            if asked and luck.random() < 0.05 and END not in block:
                if self.fault == "loses_a_word" and len(said) > 1:
                    said, ranks = said[:-1], ranks[:-1]
                if self.fault == "says_a_word_twice" and len(words) + len(said) < limit:
                    said, ranks = [*said, said[-1]], [*ranks, ranks[-1]]
                if self.fault == "ends":
                    said[-1] = END
            words += said
            entries += ranks
        seconds = self.forward_seconds * (plain + rounds * self.speculative_cost)
        return {
            "words": words,
            "entries": entries,
            "rounds": rounds,
            "plain": plain,
            "drafted": drafted,
            "judged": judged,
            "accepted": accepted,
            "seconds": seconds,
        }

    def seed(self, body: Mapping[str, Any], arm: str) -> int:
        """What an answer is drawn with: without a seed another each time."""
        if "seed" in body:
            return int(body["seed"])
        if arm != "none" and self.fault == COLD:
            return 0
        prompt = body["messages"][-1]["content"]
        self.draws[prompt, arm] += 1
        return Random(f"{prompt}/{arm}/{self.draws[prompt, arm]}").randint(10**6, 10**9)

    def body(
        self,
        asked: Mapping[str, Any],
        arm: str,
        draft_len: int,
        answer: dict[str, Any],
    ) -> dict[str, Any]:
        words = answer["words"]
        accepted = [n * 2 for n in answer["accepted"]] if self.lie else answer["accepted"]
        logprobs = None
        if asked.get("logprobs"):
            logprobs = {
                "content": [
                    entry(word, ranked, asked["top_logprobs"])
                    for word, ranked in zip(words, answer["entries"], strict=True)
                ]
            }
        return {
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "".join(f"{word} " for word in words if word != END),
                    },
                    "finish_reason": "stop" if words[-1] == END else "length",
                    "logprobs": logprobs,
                }
            ],
            "usage": {
                "prompt_tokens": len(asked["messages"][-1]["content"].split()),
                "completion_tokens": len(words),
                "paceline": {
                    "pair": self.pairs.get(arm, f"p-{arm}"),
                    "release": self.release,
                    "drafter": arm,
                    "adapter": None
                    if self.deaf or asked["model"] == self.models[0]
                    else asked["model"],
                    "draft_len": draft_len,
                    "rounds": answer["rounds"],
                    "plain_forwards": answer["plain"],
                    "drafted": answer["drafted"],
                    "accepted": sum(accepted),
                    "emitted": len(words),
                    "judged_per_position": answer["judged"],
                    "accepted_per_position": accepted,
                    "prompt_tokens_cached": 0,
                    "queue_seconds": 0.0,
                    "prefill_seconds": self.forward_seconds,
                    "decode_seconds": answer["seconds"] - self.forward_seconds,
                },
            },
        }


@dataclass(frozen=True)
class Language:
    """What may follow, likeliest first."""

    prompt: str
    path: str | None  # rounds its own way; None: never
    seed: int = 0  # another seed at a temperature says something else

    def ranked(self, context: list[str]) -> Ranked:
        chance = Random(f"{self.prompt}/{self.seed}/{' '.join(context[-2:])}/{len(context)}")
        length = Random(self.prompt).randint(20, 40)
        if len(context) >= length:
            return [(END, -0.01), *((word, -6.0 - place) for place, word in enumerate(WORDS[:3]))]
        words = chance.sample(WORDS, 4)
        near_tie = chance.random() < 0.04
        gap = chance.choice([0.0, 0.125, 0.25]) if near_tie else chance.uniform(0.6, 5.0)
        scores = [-0.5, -0.5 - gap, -7.0, -8.0]
        turn = Random(f"{self.path}/{self.prompt}/{len(context)}").random() < 0.5
        if near_tie and self.path is not None and turn:
            words[0], words[1] = words[1], words[0]
            scores[1] = -0.5 - min(gap, 0.125)
        return list(zip(words, scores, strict=True))


def event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def entry(word: str, ranked: Ranked, top: int) -> dict[str, Any]:
    def named(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "bytes": list(f"{token} ".encode()), "logprob": logprob}

    return {
        **named(word, dict(ranked).get(word, -20.0)),
        "top_logprobs": [named(token, logprob) for token, logprob in ranked[:top]],
    }


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """The fake on a free loopback port, in a thread of this process."""

    def models(_: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": name} for name in fake.models]})

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", fake.chat, methods=["POST"]),
            Route(
                "/v1/models",
                models,
            ),
            Route("/admin/pair", lambda _: JSONResponse({"engine": "toy 1", **fake.told})),
        ]
    )
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        fake.url = f"http://127.0.0.1:{port}"
        yield fake
    finally:
        server.should_exit = True
        thread.join()
