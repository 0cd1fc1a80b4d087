"""Lets a client's request in, or says why not: what it may ask, whether there is room, its tokens.

Whatever can be refused is refused before a text is cut into tokens: a server under load must not
spend its time on whom it turns away. Texts that wait to be cut up are in the queue already, and
their deadline runs. Knows asks, tokenizers and the queue; nothing of HTTP or engines.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from serving.bodies import Ask
from serving.fields import BadRequest
from serving.loading import Loaded
from serving.passing import Aside
from serving.settings import ServeSettings
from serving.text import TemplateError, Text
from serving.tickets import DeadlineError, Group
from serving.worker import Worker
from speculation.requests import RequestError, check
from speculation.sampling import Sampling
from speculation.sequence import Request

# How a client writes what the engine has another name for.
FIELDS = {
    "allowed": "allowed_token_ids",
    "banned": "banned_token_ids",
    "prompt_ids": "prompt",
}
LIKELY_BYTES = 3  # of a token; what a text is taken for in the queue until it is cut up
LONG_BYTES = 16_384  # a text that may take long, and must not hold up short ones


class Admission:
    """Made inside the event loop that it serves in."""

    def __init__(
        self,
        settings: ServeSettings,
        worker: Worker,
        available: Callable[[], Loaded],  # what serves now; raises where nothing does
    ) -> None:
        self._settings, self._worker, self._available = settings, worker, available
        self._short, self._long = Aside("paceline-tokenise"), Aside("paceline-tokenise-long")

    def expect(self, body_bytes: int) -> None:
        """Before a body of so many bytes is read: whether there can be room for what it says.

        Raises QueueFullError, and what `available` raises.
        """
        loaded = self._available()
        # A short one costs little to be read, and may say little.
        long = body_bytes > LONG_BYTES
        with self._worker.room(min(body_bytes // LIKELY_BYTES, loaded.max_len) if long else 1):
            pass

    async def admit(self, ask: Ask, *, arrived: float, tenant: str) -> Group:
        """Queue a request that came when the worker's clock said `arrived`: all of it or nothing.

        Raises BadRequest, QueueFullError, DeadlineError, and what `available` raises.
        """
        loaded = self._available()
        self._check(ask, loaded)
        seconds, likely = self._settings.deadline_seconds, _likely_tokens(ask, loaded)
        with self._worker.room(likely):
            while True:
                left = arrived + seconds - self._worker.clock()
                prompts = await self._encoded(ask, loaded, left)
                current = self._available()
                if current is loaded:
                    break
                loaded = current  # swapped meanwhile, and with it perhaps the tokens
                self._check(ask, loaded)
            requests = self._requests(ask, loaded, prompts, tenant)
        tokens = sum(len(request.prompt_ids) + request.max_tokens for request in requests)
        if tokens > likely:  # a text of few bytes a token: it held too little room
            with self._worker.room(tokens):
                pass
        return self._worker.submit(requests, loaded, arrived=arrived, deadline_seconds=seconds)

    def close(self) -> None:
        self._short.close()
        self._long.close()

    def _check(self, ask: Ask, loaded: Loaded) -> None:
        """What needs no tokens to be refused."""
        settings = self._settings
        if ask.model not in (None, settings.model, *loaded.adapters):
            raise BadRequest(
                f"model {ascii(str(ask.model)[:80])} is not served here: ask for "
                f"{settings.model!r}, or leave model out",
                "model",
                status=404,
                code="model_not_found",
            )
        if ask.trial_field and not settings.trial:
            raise BadRequest("paceline: only a server started with --trial takes it", "paceline")
        if ask.arm is not None and ask.arm not in loaded.arms:
            raise BadRequest(
                f"paceline.arm: wanted one of {', '.join(loaded.arms)}", "paceline.arm"
            )
        for prompt in ask.prompts:
            self._room(least_tokens(prompt, loaded.text), ask, loaded, least=True)

    def _room(self, tokens: int, ask: Ask, loaded: Loaded, *, least: bool = False) -> int:
        """How many tokens an answer to a prompt of so many may have. Raises BadRequest."""
        room = loaded.max_len - tokens
        wanted = room if ask.max_tokens is None else ask.max_tokens
        if room < 1 or wanted > room:
            raise BadRequest(
                f"{'at least ' if least else ''}{tokens} prompt tokens and max_tokens "
                f"{ask.max_tokens or 1} exceed the context of {loaded.max_len} tokens: shorten one "
                "of them",
                "max_tokens" if room >= 1 else ("messages" if ask.chat else "prompt"),
                code="context_length_exceeded",
            )
        return wanted

    async def _encoded(self, ask: Ask, loaded: Loaded, seconds: float) -> Sequence[tuple[int, ...]]:
        """The prompts' tokens. Raises DeadlineError when they are not had in so many seconds."""
        aside = self._long if _text_bytes(ask) > LONG_BYTES else self._short
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await aside.run(partial(self._encode, ask, loaded))
        raise DeadlineError("the request took too long")

    def _encode(self, ask: Ask, loaded: Loaded) -> Sequence[tuple[int, ...]]:
        """In a thread beside the event loop's."""
        text = loaded.text
        if not ask.chat:
            return [text.encode(one) if isinstance(one, str) else one for one in ask.prompts]
        try:
            rendered = text.render(ask.messages)
        except TemplateError as error:
            raise BadRequest(str(error), "messages") from error
        # A template may leave out what was said, so it is not known before.
        self._room(text.least_tokens(rendered), ask, loaded, least=True)
        return [text.encode_rendered(rendered)]

    def _requests(
        self, ask: Ask, loaded: Loaded, prompts: Sequence[tuple[int, ...]], tenant: str
    ) -> list[Request]:
        """Prompt by prompt, choice by choice."""
        name = f"{'chatcmpl' if ask.chat else 'cmpl'}-{secrets.token_hex(12)}"
        text, found = loaded.text, list[Request]()
        for prompt in prompts:
            first = self._request(ask, loaded, prompt, tenant)
            for choice in range(ask.n):
                completion = text.completion(ask.stops, ask.stop_ids, ask.min_tokens)
                found.append(
                    replace(
                        first,
                        id=f"{name}-{len(found)}" if found else name,
                        choice=choice,
                        ends=completion.ends if ask.stops else None,
                    )
                )
        return found

    def _request(self, ask: Ask, loaded: Loaded, prompt: tuple[int, ...], tenant: str) -> Request:
        if not prompt:
            raise BadRequest("the prompt has no tokens", "messages" if ask.chat else "prompt")
        sampling = _sampling(ask, loaded.text)
        request = Request(
            id="",
            prompt_ids=prompt,
            max_tokens=self._room(len(prompt), ask, loaded),
            sampling=sampling,
            stop_ids=loaded.text.stop_ids | ask.stop_ids,
            drafter=loaded.default.name if ask.arm is None else ask.arm,
            draft_len=loaded.length(
                ask.draft_len, seeded=sampling.seed is not None, adaptive=ask.adaptive
            ),
            logprobs=max(ask.top_logprobs, 1) if ask.logprobs else 0,
            adapter=ask.model if ask.model in loaded.adapters else None,
            scope=tenant,
        )
        try:
            check(request, loaded.limits)
        except RequestError as error:
            named = FIELDS.get(error.field, error.field)
            raise BadRequest(f"{named}: {error}", named) from error
        return request


def least_tokens(prompt: str | tuple[int, ...], text: Text) -> int:
    """Never more than the prompt has; without cutting it up."""
    return (
        (text.least_tokens(prompt) if hasattr(text, "least_tokens") else 0)
        if isinstance(prompt, str)
        else len(prompt)
    )


def _text_bytes(ask: Ask) -> int:
    """Of what has to be cut up; a character is taken for one byte at least."""
    texts = [prompt for prompt in ask.prompts if isinstance(prompt, str)]
    return sum(map(len, texts)) + sum(len(message["content"]) for message in ask.messages)


def _likely_tokens(ask: Ask, loaded: Loaded) -> int:
    """What the request may cost, as well as can be said before its texts are cut up.

    No longer than the context, for what is longer is refused.
    """
    ids = sum(len(prompt) for prompt in ask.prompts if not isinstance(prompt, str))
    prompts = len(ask.prompts) or 1
    read = min(ids + _text_bytes(ask) // LIKELY_BYTES, prompts * loaded.max_len)
    answers = prompts * min(ask.max_tokens or loaded.max_len, loaded.max_len)
    return ask.n * min(read + answers, prompts * loaded.max_len)


def _sampling(ask: Ask, text: Text) -> Sampling:
    """What the client said, else what the release says, else OpenAI's defaults."""
    try:
        return Sampling(**{"temperature": 1.0, **text.sampling, **ask.sampling})
    except ValueError as error:  # two parameters that cannot be together
        raise BadRequest(str(error)) from error
