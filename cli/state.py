"""The command `status`: what is released, registered, served and wrong, at one look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.home import (
    DEFAULT_HOME,
    HomeFolder,
    Registry,
    has_registry,
    running,
    servers,
    settings_of_existing,
)
from cli.output import Json, emit, figure, table
from configuration.reading import FILE

if TYPE_CHECKING:
    from configuration.settings import Settings
    from registry.versions import PairingState, PairVersion


def status(
    pairing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this pairing; may be repeated. Left out, all in the file."
        ),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Show each pairing: its releases, its pairs with their verdicts, and which one is champion.

    Where a server of this home runs, shows what it serves now, and where `paceline up` runs, how
    its programs do; and open alarms, with what was done about each.
    """
    settings = settings_of_existing(home, registry)
    for name in (pairing or ()) if settings.pairings else ():
        settings.pairing(name)  # a mistyped one has no releases, and nothing is wrong with it
    names = pairing or list(settings.pairings)
    there = running(home)  # not what this command brings up for itself
    states = _states(settings, names)
    now_served = served(there.get("admin") or there.get("server"), settings)
    alarms, kept = _alarms(home), _programs(home)
    record = {
        "pairings": [state.to_json() for state in states],
        "servers": there,
        "served": now_served,
        "alarms": alarms,
        "programs": kept,
    }
    lines = [line for state in states for line in _shown(state)] or [
        f"{home / FILE}: no pairing is configured: add one with `paceline init NAME TARGET`"
    ]
    if now_served is not None:
        pair, release = now_served.get("pair"), str(now_served.get("release"))[:12]
        what = f"{pair} on release {release}" if pair else "nothing yet: there is no champion"
        lines.append(f"serving {what}, at {there['server']}")
    lines += [f"{name}: {address}" for name, address in there.items()]
    for one in kept:
        why = f": {one['why']}" if one["why"] else ""
        lines.append(f"{one['name']} is {one['state']}, restarted {one['restarts']} times{why}")
    for alarm in alarms:
        lines.append(f"ALARM {alarm['cause']}: {alarm['statement']}")
        if alarm["done"]:
            lines.append(f"  done: {alarm['done']}")
    emit(record, lines)


def _programs(home: Path) -> list[dict[str, Any]]:
    """How the programs of `paceline up` do; nothing where it does not run, or was killed."""
    from cli.upkeep import read_state

    return read_state(home / "run" / "state.json", now=time.time())


def _states(settings: Settings, names: list[str]) -> list[PairingState]:
    """What is registered of each; no server is brought up where nothing can be."""
    from registry.versions import PairingState

    if not names or not (settings.registry or has_registry(settings.home)):
        return [PairingState(name, (), ()) for name in names]
    with servers(settings) as there:
        from registry.store import Store

        store = Store(there.registry)
        return [store.describe(name) for name in names]


def _shown(state: PairingState) -> Iterator[str]:
    champion = state.named("champion")
    now = "none yet" if champion is None else f"version {champion.version} ({champion.pair_id})"
    yield f"{state.pairing}: champion {now}"
    if state.pinned is not None:
        why = f": {state.pinned.pinned_why}" if state.pinned.pinned_why else ""
        yield f"  pinned to release {state.pinned.version}, whatever is released{why}"
    yield from (f"  WARNING: {warning}" for warning in state.warnings)
    if state.releases:
        rows = [["  release", "digest", "registered", "folder"]]
        for release in state.releases:
            when = datetime.fromtimestamp(release.registered).strftime("%Y-%m-%d %H:%M")
            rows.append([f"  {release.version}", release.digest[:12], when, release.uri])
        yield from table(rows)
    if state.pairs:
        rows = [["  pair", "release", "draft", "verdict", "acceptance", "speed-up", "standing"]]
        for pair in state.pairs:
            figures = (figure(pair.figure("acceptance")), figure(pair.figure("speedup"), 2))
            names = ", ".join([*pair.aliases, *_marks(pair)]) or "-"
            kinds = (pair.release[:12], pair.draft_kind, pair.verdict)
            rows.append([f"  {pair.version}", *kinds, *figures, names])
        yield from table(rows)


def _marks(pair: PairVersion) -> Iterator[str]:
    """What its verdict does not tell: why it serves, or will not serve again without force."""
    if pair.rolled_back and "champion" not in pair.aliases:  # gone back to since
        yield "rolled back"
    elif pair.forced:
        yield "forced"


def served(server: str | None, settings: Settings) -> dict[str, Any] | None:
    """What the home's server says it serves; None where none answers."""
    if server is None:
        return None
    import httpx

    try:
        told = httpx.get(
            f"{server}/admin/pair",
            headers=settings.operator_headers,
            timeout=3.0,
            trust_env=False,
        )
        answer = told.raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _alarms(home: Path) -> list[dict[str, Any]]:
    """Alarms that are not over, with what was done about each."""
    from monitoring.outbox import Outbox

    folder = home / "monitoring" / "outbox"
    if not folder.is_dir():
        return []
    outbox = Outbox(folder)
    answers = [(alarm, outbox.response(alarm.id) or {}) for alarm in outbox.open()]
    return [asdict(alarm) | {"done": answer.get("done", "")} for alarm, answer in answers]
