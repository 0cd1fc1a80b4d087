"""Reads what Alertmanager posts to a webhook (version 4), as notices of our own.

Pure: a body and what is served in, notices out, and why an alert was passed over. An alert names
whom it is of by the label `pairing` or `pair`, else it is of what is served; what it is of by the
label `paceline_cause`, else it is `external`. Of our own alerts nothing is believed: that would be
a loop. https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from monitoring.causes import ACTIONS, CAUSES
from monitoring.notices import Notice, Phase
from speculation.records import Alarm

VERSION = "4"
MOST_ALERTS = 100  # of one body; Alertmanager's own limit is `max_alerts`
MOST_STATEMENT, MOST_LABEL = 500, 200  # characters
OURS = ("paceline", "monitor")  # the label of alerts that pass our own alarms on
CAUSE = "paceline_cause"
RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
)  # fromisoformat takes no nanoseconds


class PayloadError(ValueError):
    """The body is nothing that Alertmanager posts: got, wanted."""


@dataclass(frozen=True, slots=True)
class Champion:
    """What is served for a pairing."""

    pair: str
    release: str  # digest
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    notices: tuple[Notice, ...]
    passed_over: tuple[str, ...]  # why, one for each alert


def read(body: bytes, *, champions: Mapping[str, Champion], at: float) -> Taken:
    """The alerts of one body. Raises PayloadError."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or given.get("version") != VERSION:
        raise PayloadError(f"the body: wanted Alertmanager's JSON of version {VERSION}")
    alerts = given.get("alerts")
    if not isinstance(alerts, list) or not all(isinstance(one, dict) for one in alerts):
        raise PayloadError("alerts: wanted a list of objects")
    if len(alerts) > MOST_ALERTS:
        raise PayloadError(
            f"{len(alerts)} alerts: wanted {MOST_ALERTS} at most; set max_alerts of the receiver"
        )
    notices, passed_over = [], []
    for place, alert in enumerate(alerts, start=1):
        found = _notice(alert, champions, at)
        if isinstance(found, Notice):
            notices.append(found)
        else:
            passed_over.append(f"alert {place}: {found}")
    cut = given.get("truncatedAlerts")
    if type(cut) is int and cut > 0:
        passed_over.append(f"{cut} more were left out by Alertmanager")
    return Taken(tuple(notices), tuple(passed_over))


def _notice(alert: Mapping[str, Any], champions: Mapping[str, Champion], at: float) -> Notice | str:
    """One alert as a notice, or why it is passed over."""
    labels, notes = _texts(alert.get("labels")), _texts(alert.get("annotations"))
    if labels.get(OURS[0]) == OURS[1]:
        return "it passes on an alarm of Paceline's own"
    champion = _champion(labels, champions)
    if champion is None:
        return "it is of a pair that is not served here"
    cause = labels.get(CAUSE, "external")
    if cause not in CAUSES or not CAUSES[cause].outside:
        allowed = ", ".join(name for name, row in CAUSES.items() if row.outside)
        return f"{CAUSE} is {ascii(cause[:40])}, wanted one of {allowed}"
    since = _moment(alert.get("startsAt"))
    if since is None:
        return "startsAt: wanted a time as RFC 3339 writes it"
    status = alert.get("status")
    if status not in ("firing", "resolved"):
        return "status: wanted firing or resolved"
    name = labels.get("alertname", "an alert")
    summary = notes.get("summary") or notes.get("description") or name
    action = CAUSES[cause].action
    alarm = Alarm(
        _id(alert, labels),
        champion.pair,
        champion.release,
        cause,
        f"Alertmanager says {_plain(name, MOST_LABEL)}: {_plain(summary, MOST_STATEMENT)}: "
        f"{ACTIONS[action]}",
        min(since, at),  # a clock ahead of ours
        requests=0,
        drafter=labels.get("drafter", champion.drafter)[:MOST_LABEL],
        action=action,
        raised=at,
    )
    if status == "firing":
        return Notice.raised(alarm)
    over = replace(alarm, statement=f"over: {alarm.statement}")
    return Notice(f"{alarm.id}.resolved", Phase.RESOLVED, at, over)


def _champion(labels: Mapping[str, str], champions: Mapping[str, Champion]) -> Champion | None:
    if "pair" in labels:
        return next((one for one in champions.values() if one.pair == labels["pair"]), None)
    if "pairing" in labels:
        return champions.get(labels["pairing"])
    return next(iter(champions.values())) if len(champions) == 1 else None


def _id(alert: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The same whenever Alertmanager repeats it: it repeats, we do not."""
    print_ = alert.get("fingerprint")
    whose = print_ if isinstance(print_, str) and print_ else json.dumps(labels, sort_keys=True)
    text = f"{whose}\n{alert.get('startsAt')}"
    return "am-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _texts(given: object) -> dict[str, str]:
    """A table of texts; what is something else in it is left out."""
    table = given if isinstance(given, dict) else {}
    return {name: value for name, value in table.items() if isinstance(value, str)}


def _plain(text: str, most: int) -> str:
    """One line that can be written down anywhere: no control characters, no lone surrogates."""
    kept = "".join(char if char.isprintable() else " " for char in text[:most])
    return kept.encode("utf-8", "replace").decode().strip()


def _moment(given: object) -> float | None:
    """Seconds since the epoch."""
    found = RFC_3339.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return None
    seconds, fraction, zone = found[1], (found[2] or ".0")[:7], found[3].replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(seconds + zone).timestamp() + float(fraction)
    except (ValueError, OverflowError):
        return None
    return moment if moment >= 0 else None
