"""What a webhook is sent: a notice as JSON of our own, or a message that Slack understands.

Holds no prompt and no answer: an alarm has none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from monitoring.notices import Notice, Phase

MOST_SLACK = 3000  # characters of a section's text; Slack refuses more
SIGNS = {
    Phase.RAISED: ":rotating_light:",
    Phase.AGAIN: ":bell:",
    Phase.RESOLVED: ":white_check_mark:",
}


def of_notice(notice: Notice, *, style: str, done: str = "") -> bytes:
    """A notice in one of the styles; `done` is what was done about it so far."""
    alarm = notice.alarm
    if style == "slack":
        who = f"pair {alarm.pair}" if alarm.pair else "monitoring"
        title = f"{SIGNS[notice.phase]} {alarm.cause} {notice.phase}: {who}"
        return slack(title, alarm.statement + (f"\nDone: {done}" if done else ""))
    data = notice.to_json()["alarm"] | ({"done": done} if done else {})
    return event(f"paceline.alarm.{notice.phase}", data, at=notice.at)


def event(type: str, data: Mapping[str, Any], *, at: float) -> bytes:
    """Something that happened, as Standard Webhooks lays it out."""
    when = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    text = json.dumps({"type": type, "timestamp": when, "data": _plain(data)}, allow_nan=False)
    return text.encode()


def slack(title: str, text: str) -> bytes:
    """A message for an incoming webhook of Slack: nothing in it is a link, a mention or markup."""
    said = f"*{_escaped(title)}*\n{_escaped(text)}"
    if len(said) > MOST_SLACK:
        said = re.sub(r"&[a-z]*$", "", said[: MOST_SLACK - 1]) + "…"
    block = {"type": "section", "text": {"type": "mrkdwn", "text": said}}
    return json.dumps({"text": _escaped(title), "blocks": [block]}).encode()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
