"""The driver of the loop: compares what is released, what is registered and what is served, and
starts what is missing. Runs on a schedule; a hint only makes it run sooner, so a lost hint costs
a minute and never a release. Also carries the alarm outbox to Prefect."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact

from flows import telling
from flows.adapters import set_of
from flows.alarms import deliver_alarms
from flows.attempts import Word
from flows.behind import look_at_servers
from flows.catalogue import HEAVY, LIGHT
from flows.climbing import climbs
from flows.deciding import close_answered
from flows.delivering import deliver_notices
from flows.episodes import open_retrains
from flows.holding import held_back
from flows.line import settings, store
from flows.missing import Missing, missing
from flows.queueing import in_turn
from flows.repairs import inputs
from flows.runs import stands, start_once, under_way
from flows.sources import arriving, subscribe
from flows.steps import alone
from registry.effects import heal
from registry.errors import RegistryError
from registry.versions import RELEASE

if TYPE_CHECKING:
    from configuration.settings import Pairing, Settings
    from registry.store import Store

LOOK_SECONDS = 300.0  # for one look: what hangs must not hold the next one up for ever
ENDS = ("done", "given up", "cancelled")  # words: nobody works on it any more
MOST_LOOKS = 4  # at one pairing, each after an end that changes what is missing


@flow(name="watch", retries=1, retry_delay_seconds=5, timeout_seconds=LOOK_SECONDS)
def watch() -> dict[str, Any]:
    """One look at every pairing. Gives what was started or is under way, by its key.

    One at a time: on a machine that is busy, or with a registry that hangs, a look may take longer
    than the time between two, and those that wait would take the places of what they start.
    """
    logger = get_run_logger()
    found = settings()
    with ExitStack() as held:
        try:
            held.enter_context(alone(found.home / "flows" / "watch.lock", seconds=0.0))
        except TimeoutError:
            logger.info("another look is under way")
            return {"skipped": "another look is under way"}
        return looked(found)


def looked(found: Settings) -> dict[str, Any]:
    """The look itself."""
    logger = get_run_logger()
    registry = store(found)
    wanted: list[dict[str, Any]] = []
    rows = []
    serving: list[dict[str, Any]] = []
    faults: dict[str, RegistryError] = {}
    if why := subscribe(found, registry):
        logger.warning(why)
    for name, line in found.pairings.items():
        arrived, waiting = arriving(
            found, name, line, registry, stands=stands, inputs=inputs(found, line)
        )
        wanted += arrived
        rows += waiting
        try:
            lacks = lacking(registry, found, name, line)
            lacks += climbs(registry, found, name, now=time.time())
            champion = registry.champion(name)
        except RegistryError as error:  # of one pairing: the others go on, and alarms are delivered
            faults[name] = error
            logger.error("%s: %s", name, error)
            rows.append({"pairing": name, "action": "none", "why": str(error), "key": ""})
            continue
        wanted += lacks
        serving += look_at_servers(found, name, line, champion, logger=logger)
    under = seen_to(found, wanted)
    for one in wanted:
        told = {"pairing": one["pairing"], "action": one["flow"], "why": one["why"]}
        rows.append({**told, "key": one["key"], "now": under[one["key"]]})
        logger.info("%s: %s", one["key"], under[one["key"]])
    if rows:
        create_table_artifact(rows, key="missing", description="What the last look found missing.")
    if serving:
        create_table_artifact(serving, key="serving", description="What each server serves.")
    if not faults:
        for told_why in close_answered(registry, found):
            logger.info("a question is answered: %s", told_why)
    delivered = deliver_alarms(found)
    notices = deliver_notices(found, logger=logger)
    people = telling.deliver(found, logger=logger)
    if faults and len(faults) == len(found.pairings):  # the registry itself, so it is tried again
        raise next(iter(faults.values()))
    told_faults = {name: str(error) for name, error in faults.items()}
    told = {"told": notices, "people": people, "faults": told_faults}
    return {"under_way": under, "alarms": delivered, **told}


def lacking(registry: Store, found: Settings, name: str, line: Pairing) -> list[dict[str, Any]]:
    """What one pairing lacks now. Raises RegistryError.

    What has ended is asked before what came of it: the other way round, a retrain that registers
    its pair in between would look as if it had left none.
    """
    heal(registry, name)  # a promotion that was killed after it was decided
    state, ended = inputs(found, line), dict[str, str]()
    adapters = set_of(found, line)
    for _ in range(MOST_LOOKS):
        lacks, since = _missing(registry, name, line, ended, adapters)
        news = {}
        for action, _, key, _ in lacks:
            if action != "go_live" and key not in ended:
                word, why = stands(key, inputs=state)
                if word in ENDS:
                    news[key] = why
        if not news:
            break
        ended |= news
    common = {"pairing": name, "rank": "release", "since": since, "inputs": state}
    made = [
        {**common, "flow": action, "parameters": parameters, "key": key, "why": why}
        for action, parameters, key, why in lacks
        if action in (*LIGHT, *HEAVY)
    ]
    alarmed = [{**common, **one} for one in open_retrains(registry, found, name, inputs=state)]
    return [*made, *alarmed]


def _missing(
    registry: Store, name: str, line: Pairing, ended: dict[str, str], adapters: str
) -> tuple[list[Missing], float]:
    releases = registry.releases(name)
    newest = max(releases, key=lambda release: release.version, default=None)
    if newest is None:
        return [], 0.0
    pairs = registry.pairs(name, having={RELEASE: newest.digest})
    champion = registry.champion(name)
    stays = registry.pinned(name)
    pinned = "" if stays is None else stays.digest
    now = time.time()
    state = (releases, pairs, champion)
    lacks = missing(name, line, *state, now=now, pinned=pinned, ended=ended, adapters=adapters)
    return lacks, newest.registered


def seen_to(found: Settings, wanted: list[dict[str, Any]]) -> dict[str, str]:
    """Start what can begin; how each piece of work stands then, by its key."""
    heavy = [one for one in wanted if one["flow"] in HEAVY]
    held = held_back(found, heavy, now=time.time())
    words: dict[str, Word] = {
        one["key"]: "waits" if one["key"] in held else stands(one["key"], inputs=one["inputs"])[0]
        for one in heavy
    }
    busy = [run.name for run in under_way(*HEAVY)] if "due" in words.values() else []
    turn, waiting = in_turn(heavy, words, busy)
    told: dict[str, str] = {}
    for one in wanted:
        key = one["key"]
        if one["flow"] in HEAVY and key != turn:
            told[key] = waiting.get(key, f"waits: {held[key]}" if key in held else words[key])
            continue
        run, word, why = start_once(one["flow"], one["parameters"], key, inputs=one["inputs"])
        told[key] = str(run.state_name) if run is not None else f"{word}: {why}"
    return told
