"""Several hosts that write one registry, played by processes that share no lock.

Run as a program, `python -m tests.registry.hosts race|crash URL PAIRING`, since a process that has
spoken to MLflow already cannot be forked soundly. Prints one JSON object a line.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from registry import journal
from registry.effects import heal
from registry.promotion import promote
from registry.store import Store

HOSTS = 4
ROUNDS = 5
WRITES = (
    "create_registered_model",
    "create_model_version",
    "update_model_version",
    "set_model_version_tag",
    "delete_model_version_tag",
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "update_registered_model",
    "log_text",
)


class Started:
    """A forked process that computes something."""

    def __init__(self, do: Callable[[], Any]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            code = 1
            try:
                os.write(writing, json.dumps(do()).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        self._reading = reading

    def result(self) -> Any:
        """What it computed; None where it was killed."""
        with os.fdopen(self._reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
        assert os.WEXITSTATUS(status) == 0, "a host failed: its words are above"
        return json.loads(told)


def host(url: str) -> Store:
    """The store as another host has it: nobody shares its locks."""
    return Store(url, locks=Path(tempfile.mkdtemp(prefix="paceline-host-")))


def state(url: str, pairing: str) -> dict[str, Any]:
    """Aliases by name, and the pairs of the journal in their order."""
    store = host(url)
    pairs = store.pairs(pairing)
    entries = journal.read(store, pairing)
    return {
        "aliases": {alias: pair.version for pair in pairs for alias in pair.aliases},
        "journal": [entry.version for entry in entries],
        "finished": all(entry.finished for entry in entries),
        "warnings": store.describe(pairing).warnings,
    }


def race(url: str, pairing: str) -> None:
    """Rounds in which all hosts promote at once, each another version, against one champion."""
    for _ in range(ROUNDS):
        champion = Started(lambda: state(url, pairing)).result()["aliases"].get("champion")
        others = [version for version in range(1, HOSTS + 2) if version != champion][:HOSTS]
        go, gate = os.pipe()

        def one(
            version: int, *, go: int = go, gate: int = gate, champion: int | None = champion
        ) -> tuple[str, str]:
            store = host(url)
            assert store.champion(pairing) is None or champion is not None  # it is connected now
            os.close(gate)
            os.read(go, 1)  # ends for all at once, when the gate closes
            told = promote(store, pairing, version, expect=champion)
            return str(told.outcome), told.statement

        hosts = [Started(lambda version=version: one(version)) for version in others]  # type: ignore[misc]
        os.close(gate)
        outcomes = dict(zip(others, [each.result() for each in hosts], strict=True))
        os.close(go)
        after = Started(lambda: state(url, pairing)).result()
        said = {"before": champion, "outcomes": {v: told[0] for v, told in outcomes.items()}}
        told = [statement for _, statement in outcomes.values()]
        print(json.dumps({**said, "statements": told, **after}), flush=True)


def crash(url: str, pairing: str) -> None:
    """Promotions to and fro, killed before and after each write until one comes through."""
    now = Started(lambda: state(url, pairing)).result()["aliases"]["champion"]
    for step in itertools.count():
        number, made = step // 2, bool(step % 2)
        other = 3 - now

        def killed(
            *, number: int = number, made: bool = made, now: int = now, other: int = other
        ) -> str:
            store = host(url)
            kill_at(store.client, number, made=made)
            return str(promote(store, pairing, other, expect=now).outcome)

        def healed() -> dict[str, Any]:
            before = state(url, pairing)
            heal(host(url), pairing)
            return {"killed": before, "healed": state(url, pairing)}

        def again(*, now: int = now, other: int = other) -> bool:
            return promote(host(url), pairing, other, expect=now).ok

        through = Started(killed).result()
        told = Started(healed).result()
        ok = Started(again).result()
        last = Started(lambda: state(url, pairing)).result()
        said = {"write": number, "made": made, "before": now, "wanted": other, "through": through}
        print(json.dumps({**said, **told, "again": ok, "last": last}), flush=True)
        if through is not None:
            return
        now = other


def kill_at(client: Any, number: int, *, made: bool) -> None:
    """Have this process die at its write `number`, from 0: before it, or when it was `made` and the
    answer was never read."""
    count = itertools.count()
    for name in WRITES:
        real = getattr(client, name)

        def counted(*args: Any, _real: Any = real, **named: Any) -> Any:
            here = next(count) == number
            if here and not made:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = _real(*args, **named)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(client, name, counted)


if __name__ == "__main__":
    import mlflow  # noqa: F401  once, for all of them; it opens nothing

    {"race": race, "crash": crash}[sys.argv[1]](*sys.argv[2:])
