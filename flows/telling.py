"""Tells people what the loop did by itself, and what it asks of them.

What is to be told lies in the home until each channel has it: a notification block of Prefect's,
the signed webhook, an event. Told twice by one key it is told once; a channel that fails is tried
again, longer apart each time, for a day. No notice holds a prompt or an answer. Alarms have an
outbox of their own, which `flows/delivering.py` empties.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from prefect.blocks.core import Block
from prefect.events import emit_event
from prefect.runtime import flow_run

from flows.steps import read_json, write_json
from monitoring.payloads import event, slack
from monitoring.webhook import Outcome, Sent, post

if TYPE_CHECKING:
    import logging

    from configuration.settings import Settings

CHANNELS = ("event", "block", "webhook")
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 30.0, 3600.0
GIVE_UP_SECONDS = 24 * 3600.0  # stale news is none
KEPT_SECONDS = 30 * 86_400.0  # a key is known for so long
MOST_A_LOOK = 20  # of a channel


def tell(
    home: Path,
    key: str,
    title: str,
    text: str,
    *,
    pairing: str,
    channels: tuple[str, ...] = CHANNELS,
) -> bool:
    """Have people told what happened, why, and what was done; False where `key` is known. The run
    that this is said in is linked."""
    path = _folder(home) / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if path.exists():
        return False
    link = str(flow_run.ui_url or "") if flow_run.id else ""
    notice = {"key": key, "title": title, "text": text, "pairing": pairing, "link": link}
    write_json(path, {**notice, "at": time.time(), "due": dict.fromkeys(channels, 0.0)})
    return True


def deliver(
    found: Settings,
    *,
    logger: logging.Logger | logging.LoggerAdapter[Any],
    now: float | None = None,
    send: Callable[..., Sent] = post,
    load: Callable[[str], Any] = Block.load,
    emit: Callable[..., object] = emit_event,
) -> dict[str, int]:
    """How many notices went out, by channel."""
    now = time.time() if now is None else now
    ways = {"event": lambda notice: _event(notice, emit)}
    if found.notices.block:
        ways["block"] = lambda notice: _block(notice, found.notices.block, load)
    if found.notices.webhook:
        ways["webhook"] = lambda notice: _webhook(notice, found, now, send)
    sent = dict.fromkeys(ways, 0)
    for path, notice in _stored(found.home, now):
        for channel, tried in list(notice["due"].items()):
            way = ways.get(channel)
            if way is None or now - notice["at"] > GIVE_UP_SECONDS:
                del notice["due"][channel]  # not configured, or too late
            elif sent[channel] < MOST_A_LOOK and _next(tried) <= now:
                why = way(notice)
                if why is None:
                    del notice["due"][channel]
                    sent[channel] += 1
                else:
                    logger.warning("%s could not be told by %s: %s", notice["key"], channel, why)
                    notice["due"][channel] = _later(tried, now)
        write_json(path, notice)
    return sent


def _next(tried: Any) -> float:
    return float(tried["next"]) if isinstance(tried, dict) else 0.0


def _later(tried: Any, now: float) -> dict[str, float]:
    n = int(tried["n"]) + 1 if isinstance(tried, dict) else 1
    wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(n - 1, 20), LONGEST_WAIT_SECONDS)
    return {"n": n, "next": now + wait}


def _event(notice: dict[str, Any], emit: Callable[..., object]) -> str | None:
    """Why it did not go out; None where it did. Its id is fixed, so that twice is once."""
    try:
        emit(
            event="paceline.told",
            resource={"prefect.resource.id": f"paceline.pairing.{notice['pairing']}"},
            payload=_data(notice),
            id=uuid5(NAMESPACE_URL, f"paceline:{notice['key']}"),
        )
    except Exception as error:  # Prefect's client, away or full
        return f"{type(error).__name__}: {error}"
    return None


def _block(notice: dict[str, Any], name: str, load: Callable[[str], Any]) -> str | None:
    body = notice["text"] + (f"\n{notice['link']}" if notice["link"] else "")
    try:
        load(name).notify(body, subject=notice["title"])
    except Exception as error:  # whatever somebody's block raises: it is to be told another time
        return type(error).__name__  # its words may hold the address, which may be a secret
    return None


def _webhook(
    notice: dict[str, Any], found: Settings, now: float, send: Callable[..., Sent]
) -> str | None:
    link = f"\n{notice['link']}" if notice["link"] else ""
    if found.notices.style == "slack":
        body = slack(notice["title"], notice["text"] + link)
    else:
        body = event("paceline.told", _data(notice), at=notice["at"])
    went = send(
        found.notices.webhook,
        body,
        id=str(uuid5(NAMESPACE_URL, f"paceline:{notice['key']}")),
        at=now,
        secret=found.notice_secret,
        hosts=found.notices.hosts,
    )
    return went.why if went.outcome is Outcome.AGAIN else None


def _data(notice: dict[str, Any]) -> dict[str, Any]:
    return {name: notice[name] for name in ("key", "pairing", "title", "text", "link")}


def _stored(home: Path, now: float) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The notices that are not told everywhere yet, the oldest first; old ones go."""
    found = []
    for path in _folder(home).glob("*.json"):
        notice = read_json(path)
        if notice is None or not {"key", "at", "due"} <= notice.keys():
            continue  # somebody else's file: it stops no other
        if notice["due"]:
            found.append((path, notice))
        elif now - notice["at"] > KEPT_SECONDS:
            path.unlink(missing_ok=True)
    yield from sorted(found, key=lambda one: (one[1]["at"], one[1]["key"]))


def _folder(home: Path) -> Path:
    return home / "flows" / "notices"
