"""Asks a running OpenAI-compatible endpoint for one answer, and checks what it reports of itself.

Knows the HTTP interface of a trial server. Knows nothing of models, arms' meaning or statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from evaluation.consistency import MOST_DRAFTED, inconsistency
from evaluation.sockets import Sockets
from evaluation.streams import StreamError, joined
from speculation.records import Counts, Prompt

# Likeliest tokens asked for at each position: the two of the top-two gap, and two more, because
# bf16 logits tie often enough that the speculative path may rightly choose the third.
TOP_LOGPROBS = 4

# How many tokens of an answer may have no log-probabilities: the one that ends it, which OpenAI's
# API leaves out. Paceline's own server gives one entry for every token, that one included.
UNSEEN_TOKENS = 1


class MeasurementError(RuntimeError):
    """The endpoint could not be measured: it died, refused, or reports counts that cannot be."""


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token with the log-probabilities (nats) of the likeliest ones there."""

    token: str  # its bytes in hex: half a character is a token too
    top: tuple[tuple[str, float], ...] = ()  # likeliest first

    @property
    def gap(self) -> float | None:
        """How much the likeliest token was preferred to the second; None where unknown."""
        return self.top[0][1] - self.top[1][1] if len(self.top) > 1 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """One request, answered."""

    pair: str
    release: str
    drafter: str
    draft_len: int
    text: str
    outcome: str  # "stop" or "length"
    tokens: tuple[Token, ...]  # empty unless log-probabilities were asked for
    counts: Counts
    prompt_tokens: int
    prompt_tokens_cached: int
    completion_tokens: int
    seconds: float  # the whole request as the client sees it
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    adapter: str | None = None  # of the target, that answered
    first_token_seconds: float | None = None  # from sending, as the client sees it; if streamed


class Client:
    """A connection to one endpoint. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,  # where it wants one: an admin's, which opens everything
        timeout_seconds: float = 330.0,  # of one request, a busy server's waits included
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] | None = None,  # None: until `abort` at most
    ) -> None:
        self.url = url
        self._sockets = Sockets()
        self._clock, self._sleep = clock, sleep or self._sockets.pause
        self._http = httpx.Client(
            base_url=url,
            timeout=timeout_seconds,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            trust_env=False,
        )

    def abort(self) -> None:
        """Requests in flight end with MeasurementError, and so does every later one."""
        self._sockets.end()

    def close(self) -> None:
        """End the connections. Not while a request is in flight: `abort`, and wait for its end."""
        self._http.close()

    def pause(self, seconds: float) -> None:
        """Sleep so long, or until the requests were given up."""
        self._sleep(seconds)

    def models(self) -> tuple[str, ...]:
        """The names of the models the endpoint offers: the target's first, then its adapters'."""
        body = self._json("GET", "/v1/models", None)
        try:
            names = tuple(str(model["id"]) for model in body["data"])
        except (KeyError, TypeError) as error:
            raise MeasurementError(f"{self.url}/v1/models lists no model: {body}") from error
        if not names:
            raise MeasurementError(f"{self.url}/v1/models lists no model: {body}")
        return names

    def told(self) -> dict[str, Any]:
        """What the endpoint tells of itself; nothing where it does not."""
        try:
            body = self._json("GET", "/admin/pair", None)
        except MeasurementError:
            return {}
        return body if isinstance(body, dict) else {}

    def ask(
        self,
        prompt: Prompt,
        *,
        model: str,
        arm: str,
        draft_len: int | None,  # None: the serving policy, K as the server adapts it
        max_tokens: int,
        temperature: float = 0.0,
        seed: int | None = None,
        logprobs: bool = False,
        stream: bool = False,  # it then tells when its first token came
    ) -> Answer:
        """One answer from one arm. Raises MeasurementError with the reason."""
        pace = {"adaptive": True} if draft_len is None else {"draft_len": draft_len}
        request: dict[str, Any] = {
            "model": prompt.adapter or model,
            "messages": [dict(message) for message in prompt.messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "paceline": {"arm": arm, **pace},
        }
        if seed is not None:
            request["seed"] = seed
        if logprobs:
            request |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        body, seconds, first = self._timed("POST", "/v1/chat/completions", request)
        try:
            answer = _answer(body, seconds, first)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise MeasurementError(
                f"{self.url} answered prompt {prompt.id!r} in a form that is not understood "
                f"({type(error).__name__}: {error}): is it a Paceline server?"
            ) from error
        most = MOST_DRAFTED if draft_len is None else draft_len
        fault = inconsistency(answer.counts, answer.completion_tokens, most)
        if draft_len not in (None, answer.draft_len) and arm != "none":
            fault = f"it drafted {answer.draft_len} tokens a round, asked were {draft_len}"
        if answer.adapter != prompt.adapter:
            fault = f"it answered by the adapter {answer.adapter}, asked was {prompt.adapter}"
        unseen = answer.completion_tokens - len(answer.tokens)
        if logprobs and not 0 <= unseen <= UNSEEN_TOKENS:
            fault = f"{len(answer.tokens)} log-probabilities for {answer.completion_tokens} tokens"
        if fault is not None:
            raise MeasurementError(
                f"{self.url} reports what cannot be of prompt {prompt.id!r}, arm {arm!r}: {fault}"
            )
        return answer

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        return self._timed(method, path, body)[0]

    def _timed(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[Any, float, float | None]:
        """The answer, and what it and its first token took from when it was last asked for.

        A server that is full or draining says when to come back: that is done, for as long as one
        request may take. How long it waited is the server's load, and no figure of the pair.
        """
        patience = self._http.timeout.read or 0.0
        while True:
            begun = self._clock()
            with self._response(method, path, body) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    answer, first = joined(self._in_time(response.iter_lines()), self._clock)
                    return answer, self._clock() - begun, None if first is None else first - begun
                response.read()
                seconds = self._clock() - begun
            wait = _retry_seconds(response)
            if wait is None or wait > patience:
                return self._read(path, response), seconds, None
            patience -= wait
            self._sleep(wait)

    def _in_time(self, lines: Iterator[str]) -> Iterator[str]:
        """A stream's lines, for as long as one request may take: a drip would never time out."""
        patience = self._http.timeout.read
        until = None if patience is None else time.monotonic() + patience
        for line in lines:
            if until is not None and time.monotonic() > until:
                raise MeasurementError(
                    f"{self.url} was still answering after {patience} s: it hangs or cannot cope"
                )
            yield line

    @contextmanager
    def _response(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> Iterator[httpx.Response]:
        if self._sockets.ended:
            raise MeasurementError(f"{self.url} is asked no more: the measurement was given up")
        try:
            with self._http.stream(
                method, path, json=body, extensions={"trace": self._sockets.trace}
            ) as response:
                yield response
        except StreamError as error:
            raise MeasurementError(f"{self.url}{path}: {error}") from error
        except httpx.TimeoutException as error:
            raise MeasurementError(
                f"{self.url} did not answer in {self._http.timeout.read} s: it hangs or cannot cope"
            ) from error
        except httpx.HTTPError as error:
            raise MeasurementError(
                f"{self.url} is gone: {error or type(error).__name__}"
            ) from error

    def _read(self, path: str, response: httpx.Response) -> Any:
        if response.status_code != 200:
            raise MeasurementError(
                f"{self.url}{path} refused with {response.status_code}: {response.text[:500]}"
            )
        try:
            return response.json()
        except ValueError as error:
            raise MeasurementError(f"{self.url}{path} answered no JSON") from error


def _retry_seconds(response: httpx.Response) -> int | None:
    """When to come back, if the answer is that there is no room now."""
    told = response.headers.get("retry-after", "")
    if response.status_code not in (429, 503) or not (told.isascii() and told.isdigit()):
        return None
    return max(int(told[:9]), 1)


def _answer(body: Any, seconds: float, first_token_seconds: float | None) -> Answer:
    choice, usage = body["choices"][0], body["usage"]
    told = usage["paceline"]
    content = (choice.get("logprobs") or {}).get("content") or ()
    counts = Counts(
        rounds=int(told["rounds"]),
        plain_forwards=int(told["plain_forwards"]),
        drafted=int(told["drafted"]),
        emitted=int(told["emitted"]),
        judged_per_position=tuple(int(n) for n in told["judged_per_position"]),
        accepted_per_position=tuple(int(n) for n in told["accepted_per_position"]),
    )
    return Answer(
        pair=str(told["pair"]),
        release=str(told["release"]),
        drafter=str(told["drafter"]),
        draft_len=int(told["draft_len"]),
        text=str(choice["message"]["content"] or ""),
        outcome=str(choice["finish_reason"]),
        tokens=tuple(_token(entry) for entry in content),
        counts=counts,
        prompt_tokens=int(usage["prompt_tokens"]),
        prompt_tokens_cached=int(told["prompt_tokens_cached"]),
        completion_tokens=int(usage["completion_tokens"]),
        seconds=seconds,
        queue_seconds=float(told["queue_seconds"]),
        prefill_seconds=float(told["prefill_seconds"]),
        decode_seconds=float(told["decode_seconds"]),
        adapter=told.get("adapter"),
        first_token_seconds=first_token_seconds,
    )


def _token(entry: Mapping[str, Any]) -> Token:
    top = tuple((_name(other), float(other["logprob"])) for other in entry["top_logprobs"])
    return Token(_name(entry), top)


def _name(entry: Mapping[str, Any]) -> str:
    raw = entry.get("bytes")
    return str(entry["token"]).encode().hex() if raw is None else bytes(raw).hex()
