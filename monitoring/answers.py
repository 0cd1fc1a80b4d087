"""What a built-in server's admin side says, believed only where it can be: the door for its JSON.

Knows the shapes of `/admin/pair` and of a line of `/admin/exchanges`; knows nothing of HTTP. What
passes here can be counted, divided and used as a key without another look. A time may lie a little
ahead, since no two clocks agree, and not more: a cursor that followed it would see nothing for
long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculation.records import Exchange

AHEAD_SECONDS = 300.0  # what two clocks may differ by
MOST_NAME = 512  # characters of a pair, a drafter, a digest
MOST_POSITIONS = 256  # of a draft
MOST_COUNT = 10**9  # tokens of one request
MOST_OPENED = 500  # brackets: deeper than Python's stack may not even be tried


class AnswerError(ValueError):
    """What was answered cannot be what happened."""


class AheadError(AnswerError):
    """It happened in the future, as its own clock has it."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A swap that came about."""

    at: float  # seconds since the epoch
    pair: str


@dataclass(frozen=True, slots=True)
class Served:
    """What a server says it serves now. Empty words where it says nothing."""

    pair: str = ""
    drafter: str = ""
    release: str = ""  # digest
    started: float | None = None  # seconds since the epoch, when the process began
    swaps: tuple[Swap, ...] = ()
    running: int = 0  # requests
    slots: int = 0  # that may run at once; 0: not told
    parts: Mapping[str, str] = field(default_factory=dict)  # digests of the release's parts


def read_served(text: bytes, *, now: float) -> Served:
    """`/admin/pair`. AnswerError where it is none; swaps that cannot be are passed over."""
    stored = _object(text)
    swaps = stored.get("swaps")
    found = (_swap(one, now=now) for one in swaps) if isinstance(swaps, list) else ()
    started = stored.get("started")
    return Served(
        _word(stored.get("pair")),
        _word(stored.get("drafter")),
        _word(stored.get("release")),
        None if started is None else _time(started),
        tuple(one for one in found if one is not None),
        _number(stored.get("running")),
        _number(stored.get("max_slots")),
        _words(stored.get("parts")),
    )


def read_version(text: bytes) -> str:
    """`/version` of vLLM. AnswerError where it is none."""
    version = _word(_object(text).get("version"))
    if not version:
        raise AnswerError("no version")
    return version


def read_line(line: bytes, *, now: float) -> tuple[float, Exchange]:
    """An exchange and when it was logged. AnswerError when it is none, or none that can be."""
    stored = _object(line)
    try:
        exchange = Exchange.from_json(stored)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AnswerError(f"no exchange ({type(error).__name__})") from error
    counts = exchange.counts
    judged, accepted = counts.judged_per_position, counts.accepted_per_position
    if len(judged) != len(accepted) or len(judged) > MOST_POSITIONS:
        raise AnswerError(f"{len(judged)} positions judged and {len(accepted)} accepted")
    for whole in (counts.rounds, counts.plain_forwards, counts.drafted, counts.emitted):
        _count(whole)
    for most, kept in zip(judged, accepted, strict=True):
        if _count(kept) > _count(most):
            raise AnswerError("more accepted than judged at a position")
    if sum(judged) > counts.drafted:
        raise AnswerError("more judged than drafted")
    words = (exchange.pair, exchange.drafter, exchange.release, exchange.outcome)
    if not all(isinstance(word, str) and len(word) <= MOST_NAME for word in words):
        raise AnswerError("a name that is none")
    if exchange.adapter is not None and not _word(exchange.adapter):
        raise AnswerError("an adapter's name that is none")
    _count(exchange.draft_len)
    _count(exchange.prompt_tokens)
    _count(exchange.running)
    if not isinstance(exchange.engine, str) or len(exchange.engine) > MOST_NAME:
        raise AnswerError("an engine that is none")
    if exchange.pace is not None and not _word(exchange.pace):
        raise AnswerError("a pace that is none")
    if exchange.temperature is not None:
        _time(exchange.temperature)
    logged = _time(stored.get("logged"))
    times = (exchange.started, exchange.queue_seconds)
    for seconds in (*times, exchange.prefill_seconds, exchange.decode_seconds):
        _time(seconds)
    if max(logged, exchange.started) > now + AHEAD_SECONDS:
        raise AheadError(
            f"a request of {max(logged, exchange.started) - now:.0f} seconds from now: "
            "its clock or ours is wrong"
        )
    return logged, exchange


def _object(text: bytes) -> Mapping[str, Any]:
    if text.count(b"[") + text.count(b"{") > MOST_OPENED:
        raise AnswerError("an object that is nested deeper than ours")
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"{len(text)} bytes that are no JSON object") from error
    if not isinstance(stored, dict):
        raise AnswerError(f"{len(text)} bytes that are no JSON object")
    return stored


def _swap(swap: object, *, now: float) -> Swap | None:
    if not isinstance(swap, dict) or swap.get("outcome") != "swapped":
        return None
    try:
        at = _time(swap.get("at"))
    except AnswerError:
        return None
    return Swap(at, _word(swap.get("pair"))) if at <= now + AHEAD_SECONDS else None


def _word(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= MOST_NAME else ""


def _words(value: object) -> dict[str, str]:
    """Names to words; what is none is left out."""
    if not isinstance(value, dict) or len(value) > MOST_POSITIONS:
        return {}
    return {name: word for name in value if (word := _word(value[name])) and _word(name)}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value <= MOST_COUNT else 0


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise AnswerError("a count that is no whole number of 0 or more")
    return value


def _time(value: object) -> float:
    if type(value) not in (int, float):
        raise AnswerError("a time that is no number of 0 or more")
    assert isinstance(value, int | float)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds >= 0):
        raise AnswerError("a time that is no number of 0 or more")
    return seconds
