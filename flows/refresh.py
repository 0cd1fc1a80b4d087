"""The retrain by the clock: where something changed that a draft follows from, and not otherwise.

Started by the pairing's cron line, `limits.refresh`. It only notes that a retrain is wanted; the
reconcile starts it in its turn, behind releases and alarms, and within what the limits allow.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.basis import basis, changed, last_retrain
from flows.episodes import OVER, WANTED, want_retrain
from flows.ledger import entries
from flows.line import configured, store
from flows.restraint import may_refresh
from flows.steps import digest
from flows.traffic import FEWEST, captured


@flow(name="refresh", retries=2, retry_delay_seconds=5, timeout_seconds=300.0)
def refresh(pairing: str) -> dict[str, Any]:
    """Want a retrain of what is serving, or skip it and say why. Twice for one change is once."""
    settings, line = configured(pairing)
    champion = store(settings).champion(pairing)
    if line.draft != "head":
        return _skipped(pairing, f"a draft of the kind {line.draft} learns nothing")
    if champion is None or champion.stands_in:
        return _skipped(pairing, "the draft of the release that serves is made first")
    release, now = champion.release, basis(settings, line)
    past = [entry for entry in entries(settings.home) if entry["pairing"] == pairing]
    if key := _open(past):
        return _told(
            pairing, {"wanted": key, "statement": "a retrain by the clock is wanted already"}
        )
    last = last_retrain(past, release)
    news = changed(None if last is None else last["basis"], now)
    asked = captured(settings, line, release, since=0.0 if last is None else last["at"])
    if len(asked) >= FEWEST:
        news.append(f"what users asked ({len(asked)} requests)")
    if not news:
        return _skipped(pairing, "nothing that a draft follows from has changed since the last one")
    if too_many := may_refresh(past, line.limits, now=time.time()):
        return _skipped(pairing, too_many)
    why = f"by the clock, since there is news: {', '.join(news)}"
    of = digest({**now, "after": "" if last is None else last["key"]})
    key = want_retrain(settings, pairing, release, f"refresh-{of[:8]}", why, rank="refresh")
    return _told(pairing, {"wanted": key, "statement": f"a retrain is wanted {why}"})


def _open(past: Sequence[Mapping[str, Any]]) -> str:
    """The key of the clock's retrain that is wanted and not over; empty where there is none."""
    over = {entry["work"] for entry in past if entry["what"] == OVER}
    mine = [e["work"] for e in past if e["what"] == WANTED and e["rank"] == "refresh"]
    return next((str(work) for work in mine if work not in over), "")


def _skipped(pairing: str, why: str) -> dict[str, Any]:
    return _told(pairing, {"wanted": "", "statement": f"skipped: {why}"})


def _told(pairing: str, outcome: dict[str, Any]) -> dict[str, Any]:
    get_run_logger().info(outcome["statement"])
    create_markdown_artifact(f"**{pairing}**: {outcome['statement']}.", key="refresh")
    return outcome
