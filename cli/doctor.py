"""The command `doctor`: looks at everything that the loop needs, and says what to do."""

from __future__ import annotations

import threading
from dataclasses import asdict

import typer

from cli.checks import Check, Look, looks
from cli.exits import Exit, sentence
from cli.home import DEFAULT_HOME, HomeFolder, Registry, settings_of
from cli.output import Json, emit

SECONDS = 15.0  # for all looks together: one that hangs is told as that


def doctor(
    registry: Registry = None, home: HomeFolder = DEFAULT_HOME, as_json: Json = False
) -> None:
    """Check what the loop needs, and say what to do about what is not well.

    Libraries, disk, device, ports, the registry and Prefect, clocks; of each pairing its prompts,
    target, servers and sources. Starts and changes nothing. Exit code 1 where something is not
    well, 2 where paceline.toml itself is not.
    """
    settings = settings_of(home, registry)
    checks = examined(dict(looks(settings)), seconds=SECONDS)
    if not settings.pairings:
        do = "write one with `paceline init NAME TARGET`"
        checks["pairings"] = [Check("pairings", False, "none is configured", do)]
    rows = [{**asdict(one), "name": name} for name, found in checks.items() for one in found]
    emit({"ok": all(row["ok"] for row in rows), "checks": rows}, told(checks))
    if not all(row["ok"] for row in rows):
        raise typer.Exit(Exit.NO)


def examined(wanted: dict[str, Look], *, seconds: float) -> dict[str, list[Check]]:
    """What each look found; all of them at once, and none for longer than `seconds`."""
    found: dict[str, list[Check]] = {}

    def run(name: str, look: Look) -> None:
        try:
            found[name] = look()
        except Exception as error:  # whatever a look raises is what it found
            found[name] = [Check(name, False, sentence(error), "mend it, and look again")]

    threads = [
        threading.Thread(target=run, args=each, daemon=True, name=each[0])
        for each in wanted.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        seconds = seconds if not thread.is_alive() else 0.0
    late = [Check("", False, "no answer in time", "see whether what it asks hangs")]
    return {name: found.get(name, late) for name in wanted}


def told(checks: dict[str, list[Check]]) -> list[str]:
    """The same for people: a line each, and under what is not well what to do."""
    lines = []
    for name, found in checks.items():
        for one in found:
            lines.append(f"{'ok ' if one.ok else 'NO '} {name}: {one.found}")
            if one.do:
                lines.append(f"      {one.do}")
    bad = sum(1 for found in checks.values() for one in found if not one.ok)
    return [*lines, "all is well" if not bad else f"{bad} to see to"]
