"""The life of alarms: findings in, what is to be told out. Pure; its state is JSON.

One alarm a matter while it lasts. It is over when its cause has held no more for a while, by the
clock and by requests; a matter that comes back soon is the same alarm, and is over only when it has
stayed away for the whole cooldown; an open one is told again, ever more rarely; what another alarm
explains waits until that one is over. Knows no statistics, no files and no channel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from monitoring.causes import ACTIONS, CAUSES, inhibited
from monitoring.facts import Finding
from monitoring.notices import Notice, Phase
from monitoring.wording import iso
from speculation.records import Alarm

QUIET_SECONDS, QUIET_REQUESTS = 300.0, 30  # without the cause before an alarm is over
LONGEST_SECONDS = 24 * 3600.0  # between reminders
HOUR_SECONDS, MOST_AN_HOUR = 3600.0, 20  # notices of a home, but for what is over
SEVERE = {"page": 0, "ticket": 1, "note": 2}


@dataclass(slots=True)
class Open:
    """A matter that was raised, until its cooldown is over."""

    alarm: Alarm
    raised: bool = False  # somebody was told of it
    told: float = 0.0  # when last; 0: it is to be told now
    reminders: int = 0
    quiet_since: float | None = None  # the cause holds no more since
    quiet_from: int = 0  # requests of the pair seen by then
    ended: float | None = None
    reopened: int = 0

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Open:
        return cls(**{**stored, "alarm": Alarm.from_json(stored["alarm"])})


@dataclass(slots=True)
class Alarms:
    """All matters of one home. The verb is `update`."""

    cooldown_seconds: float = 1800.0
    renotify_seconds: float = 4 * 3600.0
    code_version: str = ""
    matters: dict[str, Open] = field(default_factory=dict)  # by `Finding.key`
    last: float = 0.0  # time never goes back
    recent: list[float] = field(default_factory=list)  # when something was told, of the last hour
    many: float = -HOUR_SECONDS  # when it was last said that more wait

    def update(
        self,
        findings: Sequence[Finding],
        *,
        at: float,
        seen: Mapping[str, int] | None = None,  # requests ever watched, by "pair|drafter"
        served: Collection[str] | None = None,  # pairs served now; of others no request comes
    ) -> list[Notice]:
        """What holds now, all of it; what is not among it holds no more. What is to be told."""
        self.last = at = max(at, self.last)
        self.matters = {
            key: one
            for key, one in self.matters.items()
            if one.ended is None or at - one.ended < self.cooldown_seconds
        }
        seen = seen or {}
        held: set[str] = set()
        for finding in findings:
            if served is not None and finding.pair and finding.pair not in served:
                continue  # its detectors stand as they stood when its last request came
            key = self._same(finding)
            held.add(key)
            if key in self.matters and self.matters[key].ended is None:
                self._go_on(self.matters[key], finding)
            elif not self._explained(finding, findings):
                self._open(key, finding, at)
        over = list(self._over(held, at, seen, served))
        return [*over, *self._tell(at)]

    def open(self) -> list[Alarm]:
        """Alarms that are not over."""
        return [one.alarm for one in self.matters.values() if one.ended is None]

    def _same(self, finding: Finding) -> str:
        """The key of the open matter that this finding is of: a fall of one slice that spreads to
        the pair, or of the pair that turns out to be one slice's, is the matter it was."""
        if finding.key in self.matters and self.matters[finding.key].ended is None:
            return finding.key
        whole = finding.key.removesuffix(finding.slice)
        for key, one in self.matters.items():
            if one.ended is None and key.startswith(whole):
                named = f"slice.{one.alarm.slice}.estimate" in finding.evidence
                if "" in (one.alarm.slice, finding.slice) or named:
                    return key
        return finding.key

    def _explained(self, finding: Finding, findings: Iterable[Finding]) -> bool:
        others = [(one.cause, one.pair, one.slice) for one in findings]
        others += [(one.cause, one.pair, one.slice) for one in self.open()]
        return any(
            pair == finding.pair
            and inhibited(finding.cause, part=finding.slice, by=cause, by_part=part)
            for cause, pair, part in others
        )

    def _open(self, key: str, finding: Finding, at: float) -> None:
        before = self.matters.get(key)
        if before is not None:  # within its cooldown: the same alarm
            before.ended = before.quiet_since = None
            before.reopened += 1
            before.told = 0.0  # it was told that it is over
            return
        alarm = alarm_of(finding, at=at, code_version=self.code_version)
        self.matters[key] = Open(alarm)

    def _go_on(self, one: Open, finding: Finding) -> None:
        one.quiet_since = None
        one.alarm = replace(
            one.alarm,
            statement=finding.statement,
            requests=finding.requests,
            estimate=finding.estimate,
            expected=finding.expected,
            evidence=dict(finding.evidence),
        )

    def _over(
        self,
        held: Collection[str],
        at: float,
        seen: Mapping[str, int],
        served: Collection[str] | None,
    ) -> Iterator[Notice]:
        for key, one in self.matters.items():
            if one.ended is not None or key in held:
                continue
            alarm = one.alarm
            requests = seen.get(f"{alarm.pair}|{alarm.drafter}", 0)
            if one.quiet_since is None:
                one.quiet_since, one.quiet_from = at, requests
            gone = served is not None and alarm.pair not in served
            enough = requests - one.quiet_from >= QUIET_REQUESTS
            by_requests = CAUSES[alarm.cause].by_requests if alarm.cause in CAUSES else False
            wait = max(QUIET_SECONDS, self.cooldown_seconds if one.reopened else 0.0)
            if at - one.quiet_since < wait or (by_requests and not enough and not gone):
                continue
            one.ended = at
            if one.raised:
                why = "its pair is not served any more" if gone else "its cause holds no more"
                statement = f"over: {why} since {iso(one.quiet_since)}. It was: {alarm.statement}"
                suffix = f".{one.reopened}" if one.reopened else ""
                yield Notice(
                    f"{alarm.id}.resolved{suffix}",
                    Phase.RESOLVED,
                    at,
                    replace(alarm, statement=statement),
                )

    def _tell(self, at: float) -> Iterator[Notice]:
        """Of the open ones those that are due, the severest first, and no storm of them."""
        self.recent = [then for then in self.recent if at - then < HOUR_SECONDS]
        due = [one for one in self.matters.values() if one.ended is None and self._due(one, at)]
        due.sort(key=lambda one: (SEVERE[severity(one.alarm)], one.alarm.since, one.alarm.id))
        room = MOST_AN_HOUR - len(self.recent)
        if len(due) > room > 0 and at - self.many >= HOUR_SECONDS:
            room, self.many = room - 1, at
            self.recent.append(at)
            yield Notice.raised(_many(len(due) - room, at, self.code_version))
        for one in due[: max(room, 0)]:
            self.recent.append(at)
            yield self._notice(one, at)

    def _due(self, one: Open, at: float) -> bool:
        if one.told == 0.0:
            return True
        wait = min(self.renotify_seconds * 2 ** min(one.reminders, 10), LONGEST_SECONDS)
        return severity(one.alarm) != "note" and at - one.told >= wait

    def _notice(self, one: Open, at: float) -> Notice:
        one.told = at
        if not one.raised:
            one.raised = True
            return Notice(one.alarm.id, Phase.RAISED, at, one.alarm)
        one.reminders += 1
        again = f"open since {iso(one.alarm.since)}"
        if one.reopened:
            again += f", came back {one.reopened} times"
        return Notice(
            f"{one.alarm.id}.again.{one.reminders}",
            Phase.AGAIN,
            at,
            replace(one.alarm, statement=f"{again}: {one.alarm.statement}"),
        )

    def to_json(self) -> dict[str, Any]:
        matters = {key: asdict(one) for key, one in self.matters.items()}
        return {"matters": matters, "last": self.last, "recent": self.recent, "many": self.many}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from what `to_json` gave. KeyError, TypeError or ValueError for what it did not."""
        self.matters = {key: Open.from_json(one) for key, one in stored["matters"].items()}
        self.last, self.many = float(stored["last"]), float(stored["many"])
        self.recent = [float(one) for one in stored["recent"]]


def severity(alarm: Alarm) -> str:
    """page, ticket or note; a cause of another version is worth a ticket."""
    return CAUSES[alarm.cause].severity if alarm.cause in CAUSES else "ticket"


def alarm_id(pair: str, drafter: str, cause: str, since: float, part: str = "") -> str:
    """Fixed by the matter and where it began, so that raising it again is raising it once."""
    matter = (pair, drafter, cause, f"{since:.3f}", *([part] if part else []))
    return "a-" + hashlib.sha256("\n".join(matter).encode()).hexdigest()[:16]


def alarm_of(finding: Finding, *, at: float, code_version: str = "") -> Alarm:
    """A finding that is to be told of, as an alarm."""
    return Alarm(
        alarm_id(finding.pair, finding.drafter, finding.cause, finding.since, finding.slice),
        finding.pair,
        finding.release,
        finding.cause,
        finding.statement,
        finding.since,
        finding.requests,
        dict(finding.evidence),
        finding.drafter,
        finding.slice,
        finding.estimate,
        finding.expected,
        finding.action,
        at,
        code_version,
    )


def _many(left: int, at: float, code_version: str) -> Alarm:
    statement = (
        f"{left} more alarms wait to be told: more than {MOST_AN_HOUR} came within an hour. "
        f"`paceline status` shows them: {ACTIONS['look']}"
    )
    finding = Finding("", "", "", "many_alarms", statement, at, action="look")
    return alarm_of(finding, at=at, code_version=code_version)
