"""What users asked, for a draft to learn from: captured requests of the slice that drifted.

Only where capture is switched on does a server keep the tokens of requests. They are read from the
pairing's servers, or from the log of a server in this home; turned into prompts in a child that
knows the tokenizer; kept where nobody else may read them, and deleted when the pair is registered.
What the pair keeps of them is hashes. Knows nothing of Prefect.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from configuration.prompts import read_prompts
from configuration.settings import Pairing, Settings
from flows.child import in_child
from flows.ladder import LEARN_AGAIN
from flows.steps import file_digest, read_json
from monitoring.answers import AnswerError, read_line
from monitoring.exchanges import read_exchanges
from monitoring.fetching import on_this_machine
from monitoring.slices import slices_of
from speculation.records import Prompt

if TYPE_CHECKING:
    from speculation.records import Alarm, Exchange

MOST = 4096  # captured requests that are looked at, the last ones
MOST_LINES = 100_000  # of a server's log
FEWEST = 16  # questions that something can be learned from
READ_SECONDS = 60.0  # between two pieces of an answer
FOLDER = "traffic"  # in a work folder

Progress = Any


def gather(
    settings: Settings,
    line: Pairing,
    plan: Mapping[str, Any],
    cause: str,  # an alarm's id, or the clock's
    work: Path,
    progress: Progress,
) -> dict[str, Any]:
    """The prompts file that traffic makes, its digest and count; `refused` says why a retrain for
    this cause cannot help without one. Where there is too little otherwise, "prompts" is empty."""
    alarm = alarm_of(settings, cause)
    since, of = (0.0, "") if alarm is None else (alarm.since, alarm.slice)
    folder = work / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    kept = captured(settings, line, str(plan["release"]), since=since, of=of)
    count, told = 0, "no request since then was captured"
    if kept:
        asked = folder / "exchanges.jsonl"
        _write(asked, kept)
        spec = {"target": plan["target"], "exchanges": str(asked)}
        prompts = folder / "prompts.jsonl"
        in_child("traffic", {**spec, "out": str(prompts)}, progress)
        asked.unlink()
        count = len(read_prompts(prompts)) if prompts.stat().st_size else 0
        left = sum((read_json(prompts.with_suffix(".left.json")) or {}).values())
        told = f"{count} questions in {len(kept)} captured requests, {left} others left out"
    if count >= FEWEST:
        digest = file_digest(folder / "prompts.jsonl")
        path = str(folder / "prompts.jsonl")
        return {"prompts": path, "digest": digest, "count": count, "told": told, "refused": ""}
    forget(work)
    refused = ""
    if alarm is not None and alarm.cause in LEARN_AGAIN:
        refused = (
            f"{told}: what it learned from already, it would learn again. Switch capture on "
            "(`paceline serve --capture`), or give prompts of the new kind in train_prompts"
        )
    return {"prompts": "", "digest": "", "count": 0, "told": told, "refused": refused}


def taught(configured: list[Prompt], traffic: Mapping[str, Any] | None) -> list[Prompt]:
    """What a draft learns from: in turn one of the traffic and one of the configured prompts, as
    far as the former go."""
    if not traffic or not traffic["prompts"]:
        return configured
    asked = read_prompts(Path(traffic["prompts"]))
    mixed = [one for pair in zip(asked, configured, strict=False) for one in pair]
    shorter = min(len(asked), len(configured))
    return [*mixed, *asked[shorter:], *configured[shorter:]]


def forget(work: Path) -> None:
    """Delete what users asked."""
    shutil.rmtree(work / FOLDER, ignore_errors=True)


def alarm_of(settings: Settings, cause: str) -> Alarm | None:
    """The alarm with that id, where it is one of this home's."""
    from monitoring.outbox import Outbox

    alarms = Outbox(settings.home / "monitoring" / "outbox").alarms()
    return next((alarm for alarm in alarms if alarm.id == cause), None)


def captured(
    settings: Settings, line: Pairing, release: str, *, since: float, of: str = ""
) -> list[dict[str, Any]]:
    """The last captured requests of a release that are of the slice `of`, as id, ids and adapter.

    A server that does not answer is passed over: another one, or a later retrain, has them.
    """
    kept: deque[dict[str, Any]] = deque(maxlen=MOST)
    for exchange in _exchanges(settings, line, since):
        wanted = exchange.release == release and exchange.prompt_ids is not None
        known = exchange.adapter is None or exchange.adapter in line.adapters
        if wanted and known and (not of or of.startswith("source=") or of in slices_of(exchange)):
            ids = list(exchange.prompt_ids or ())
            kept.append({"id": exchange.id, "ids": ids, "adapter": exchange.adapter})
    return list(kept)


def _exchanges(settings: Settings, line: Pairing, since: float) -> Iterator[Exchange]:
    if not line.servers:
        yield from read_exchanges(settings.home / "serving" / "exchanges", since)
    for server in line.servers:
        try:
            yield from _asked(settings, server, since)
        except httpx.HTTPError:
            continue


def _asked(settings: Settings, server: str, since: float) -> Iterator[Exchange]:
    with httpx.stream(
        "GET",
        server.rstrip("/") + "/admin/exchanges",
        params={"since": repr(since), "limit": MOST_LINES},
        headers=settings.operator_headers,
        timeout=READ_SECONDS,
        trust_env=not on_this_machine(server),
    ) as answer:
        answer.raise_for_status()
        for stored in answer.iter_lines():
            try:
                yield read_line(stored.encode(), now=time.time())[1]
            except AnswerError:
                continue  # one line that is none hides no other


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        for one in lines:
            out.write(json.dumps(one) + "\n")
