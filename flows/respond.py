"""An alarm has been raised: do what its cause asks for. One answer for all the alarms of a matter.

What is to be done is written down before it is done, so that a run that was killed in between does
the same again and nothing else; each step bears to be done twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows import served
from flows.episodes import want_retrain
from flows.ladder import answer
from flows.ledger import entries, note
from flows.line import settings, store
from flows.restraint import may_retrain, may_turn
from flows.telling import tell
from registry.versions import PAIR_ID, RELEASE
from speculation.records import WITHOUT_WEIGHTS

if TYPE_CHECKING:
    from configuration.settings import Settings
    from registry.store import PairVersion, Store

ANSWERED = "answered"  # the ledger's word
ANSWER_SECONDS = 900.0  # more than servers that hang and a draft that does not live take together


@flow(name="respond", retries=2, retry_delay_seconds=5, timeout_seconds=ANSWER_SECONDS)
def respond(alarm: Mapping[str, Any], ids: Sequence[str] = (), count: int = 1) -> dict[str, Any]:
    """Act on the alarms of one pair and cause; `alarm` is the first of them, an `Alarm` as JSON,
    `ids` are those that this answers. Gives what was done."""
    found = settings()
    registry = store(found)
    cause, pair = str(alarm["cause"]), str(alarm["pair"])
    pairing, versions = owner(registry, found, pair)
    if not pairing:
        steps = [{"kind": "note", "why": f"no pairing here has the pair {pair}"}]
        done = [steps[0]["why"]]
    else:
        steps = planned(registry, found, pairing, versions, alarm)
        done = [act(registry, found, pairing, versions, alarm, step) for step in steps]
    action, told = ", ".join(step["kind"] for step in steps), "; ".join(done)
    get_run_logger().warning("%s: %s", alarm["statement"], told)
    create_markdown_artifact(
        f"**{cause}** of pair `{pair}`: {alarm['statement']}\n\n**{action}**: {told}\n\n"
        f"Alarms that this answers: {count}.",
        key="response",
    )
    for step in steps:
        if step["kind"] == "ask":
            title = f"{pairing}: a person is asked about {cause}"
            text = f"{alarm['statement']}; {step['why']}."
            tell(found.home, f"ask:{alarm['id']}", title, text, pairing=pairing)
    for one in ids:
        _told(found, one, action, told)
    return {"action": action, "done": told}


def owner(registry: Store, found: Settings, pair: str) -> tuple[str, list[PairVersion]]:
    """The pairing that the pair is of, and its versions there; empty where no pairing has it."""
    for pairing in found.pairings:
        versions = registry.pairs(pairing, having={PAIR_ID: pair})
        if versions:
            return pairing, versions
    return "", []


def planned(
    registry: Store,
    found: Settings,
    pairing: str,
    versions: Sequence[PairVersion],
    alarm: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The steps of the answer to this alarm: as they were decided when it was first answered."""
    key, now = f"respond:{alarm['id']}", time.time()
    past = [entry for entry in entries(found.home) if entry["pairing"] == pairing]
    if not any(entry["key"] == key for entry in past):
        cause, pair = str(alarm["cause"]), str(alarm["pair"])
        facts = gathered(registry, found, pairing, versions, alarm, past, now=now)
        steps = answer(cause, facts)
        kinds = [step["kind"] for step in steps]
        told = {"cause": cause, "pair": pair, "kinds": kinds, "steps": steps}
        note(found.home, key, ANSWERED, pairing, **told)
    return next(list(e["steps"]) for e in entries(found.home) if e["key"] == key)


def gathered(
    registry: Store,
    found: Settings,
    pairing: str,
    versions: Sequence[PairVersion],
    alarm: Mapping[str, Any],
    past: Sequence[Mapping[str, Any]],
    *,
    now: float,
) -> dict[str, Any]:
    """The facts that an answer rests on, as `flows.ladder.answer` names them."""
    from registry.promotion import choose_earlier

    line, champion = found.pairing(pairing), registry.champion(pairing)
    releases = registry.releases(pairing)
    newest = max(releases, key=lambda one: one.version, default=None)
    pair, release, cause = str(alarm["pair"]), str(alarm["release"]), str(alarm["cause"])
    same = [] if champion is None else registry.pairs(pairing, having={RELEASE: champion.release})
    others = [one for one in same if champion is not None and one.version != champion.version]
    earlier = choose_earlier(others)
    coming = newest is not None and newest.digest == release
    coming = coming and not registry.pairs(pairing, having={RELEASE: release})
    mine = [entry for entry in past if entry["what"] == ANSWERED and entry["pair"] == pair]
    reloads = [entry["at"] for entry in mine if "reload" in entry["kinds"]]
    lowered = any("steer" in e["kinds"] for e in mine if e["cause"] == cause)
    evidence = alarm.get("evidence") or {}
    return {
        "serving": champion is not None and champion.pair_id == pair,
        "drafter": versions[0].draft_kind,
        "draft_len": line.draft_len,
        "earlier": f"v{earlier.version}" if earlier and _has_weights(earlier) else "",
        "servers": bool(line.servers),
        "reloaded": now - max(reloads) if reloads else None,
        "lowered": lowered,
        "coming": coming,
        "known": any(one.digest == release for one in releases),
        "loses": float(evidence.get("speedup", 1.0)) < 1.0,
        "may_retrain": may_retrain(past, line.limits, cause=cause, release=release, now=now),
        "may_turn": may_turn(past, line.limits, now=now),
    }


def act(
    registry: Store,
    found: Settings,
    pairing: str,
    versions: Sequence[PairVersion],
    alarm: Mapping[str, Any],
    step: Mapping[str, Any],
) -> str:
    """Do one step, which may have been done already; what came of it, in words."""
    kind, line = step["kind"], found.pairing(pairing)
    reason = f"alarm {alarm['id']}: {alarm['cause']}"
    if kind == "retrain":
        release, cause = str(alarm["release"]), str(alarm["id"])
        want_retrain(found, pairing, release, cause, str(alarm["statement"]))
        return f"a retrain of {pairing} is wanted, and begins in its turn"
    if kind == "reload":
        return _reload(registry, found, pairing, versions, reason)
    if kind == "steer":
        asked = {name: step[name] for name in ("drafter", "draft_len") if name in step}
        return f"{step['why']}: {served.steer(found, line, asked)}"
    if kind in ("roll_back", "fall_back"):
        return f"{step['why']}: {_leave(registry, pairing, versions, reason, step)}"
    return f"a person is asked: {step['why']}" if kind == "ask" else str(step["why"])


def _reload(
    registry: Store, found: Settings, pairing: str, versions: Sequence[PairVersion], reason: str
) -> str:
    """Have the pair loaded anew, and leave it at once where that is not seen to have cured it: an
    alarm that stays open is not raised again."""
    line, since = found.pairing(pairing), time.time()
    told, did = served.reload(found, line)
    lives = did and served.lives(found, line, versions[0].pair_id, since=since)
    if lives:
        return f"{told}, and its draft is accepted again"
    why = "its draft is not accepted since" if did else "so it was not loaded anew"
    step = {"kind": "roll_back", "to": "ngram"}
    return f"{told}; {why}: {_leave(registry, pairing, versions, reason, step)}"


def _leave(
    registry: Store,
    pairing: str,
    versions: Sequence[PairVersion],
    reason: str,
    step: Mapping[str, Any],
) -> str:
    """Leave the champion, where it still is the alarm's pair: asked twice, it is left once. Where
    there is no earlier pair to go back to, for a draft that needs no making."""
    from registry.promotion import Outcome, rollback
    from registry.standing_in import fall_back

    now = registry.champion(pairing)
    leave = next((one for one in versions if now and one.version == now.version), versions[0])
    kind = str(step["to"])
    if step["kind"] == "roll_back":
        back = rollback(registry, pairing, leave=leave.version, reason=reason)
        if back.outcome is not Outcome.REFUSED:
            return back.statement
        kind = "ngram"
    return fall_back(registry, pairing, kind, reason=reason, leave=leave.version).statement


def _has_weights(pair: PairVersion) -> bool:
    return pair.draft_kind not in WITHOUT_WEIGHTS


def _told(found: Settings, alarm_id: str, action: str, done: str) -> None:
    """Keep with the alarm what was done about it, for whoever reads or is told of it."""
    from monitoring.outbox import Outbox

    outbox = Outbox(found.home / "monitoring" / "outbox")
    if outbox.response(alarm_id) is None:
        outbox.responded(alarm_id, action=action, done=done, at=time.time())
