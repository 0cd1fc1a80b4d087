"""Keeps programs running: each one by itself, restarted with a growing wait, ended in order.

Knows processes and one URL each that says ready; knows nothing of what they do. Everything happens
in `turn`, which is called again and again by the one thread that may start children, so a program
that takes minutes to come up keeps no other from being looked after.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any, Literal

import httpx

from cli.programs import Program
from evaluation.endpoints import bound, ending, tail

State = Literal["waits", "starts", "up", "failing", "ended"]
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0  # before a restart, doubled each time
HEALTHY_SECONDS = 300.0  # up for so long, and the waits begin anew
READY_SECONDS = 300.0  # a server imports for seconds; on a machine that is busy, for minutes
FAILING_DEATHS, FAILING_SECONDS = 5, 600.0  # so many in so long are told of
STALE_SECONDS = 30.0  # of a state that is written each two seconds: nobody writes it any more
ASK_SECONDS = 1.0  # for an answer to whether it is ready


def wait_seconds(failures: int) -> float:
    """Before a program is started again that has died so often in a row."""
    return float(min(FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, 30), LONGEST_WAIT_SECONDS))


@dataclass
class Kept:
    """One program, and how it does."""

    program: Program
    state: State = "waits"
    since: float = 0.0  # of the state, by the clock
    pid: int | None = None
    restarts: int = 0
    why: str = ""  # it is not up: how it ended, or what it waits for
    failures: int = 0  # in a row
    deaths: list[float] = field(default_factory=list)
    due: float = 0.0  # not started before
    process: Popen[bytes] | None = None
    running: ExitStack = field(default_factory=ExitStack)

    def become(self, state: State, now: float, why: str = "") -> None:
        if state != self.state:
            self.since = now
        self.state, self.why = state, why


class Upkeep:
    """The programs of one home, in the order in which they are started."""

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        folder: Path,  # of logs and of what is told of them
        environ: Mapping[str, str],
        began: Callable[[str, int], None] = lambda name, pid: (
            None
        ),  # a child, right after its start
        ready: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kept = {program.name: Kept(program) for program in programs}
        self._folder, self._environ, self._began = folder, dict(environ), began
        self._ready, self._clock = ready or answers, clock

    def turn(self) -> None:
        """Look after each of them once; blocks for seconds at most."""
        now = self._clock()
        for one in self.kept.values():
            if one.process is not None:
                self._look(one, now)
            if one.process is None and now >= one.due:
                self._start(one, now)

    def end(self) -> None:
        """End them all, the last one to be started first."""
        for one in reversed(self.kept.values()):
            one.running.close()
            one.process = None
            one.become("ended", self._clock())

    def kill(self) -> None:
        """Take from all of them the time that they have to end in. Safe in a signal's handler."""
        for one in self.kept.values():
            if one.process is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(one.process.pid, signal.SIGKILL)

    def told(self) -> list[dict[str, Any]]:
        """How each does, as plain data."""
        now = self._clock()
        return [
            {
                "name": name,
                "state": one.state,
                "seconds": round(max(0.0, now - one.since), 1),
                "pid": one.pid if one.process is not None else None,
                "url": one.program.base,
                "restarts": one.restarts,
                "why": one.why,
                "log": str(self.log_of(name)),
            }
            for name, one in self.kept.items()
        ]

    def log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _look(self, one: Kept, now: float) -> None:
        process, program = one.process, one.program
        assert process is not None  # `turn` asked
        code = process.poll()
        if code is not None:
            self._died(one, now, ending(code))
        elif one.state != "up" and (not program.ready or self._ready(program.base + program.ready)):
            one.become("up", now)
        elif one.state != "up" and now - one.since > READY_SECONDS and one.pid == process.pid:
            self._died(one, now, f"was not ready after {READY_SECONDS:g} s")
        if one.state == "up" and now - one.since >= HEALTHY_SECONDS:
            one.failures = 0

    def _died(self, one: Kept, now: float, how: str) -> None:
        one.running.close()
        one.process = None
        one.failures += 1
        one.deaths = [at for at in (*one.deaths, now) if now - at < FAILING_SECONDS]
        one.due = now + wait_seconds(one.failures)
        last = tail(self.log_of(one.program.name), lines=1)
        often = len(one.deaths) >= FAILING_DEATHS
        one.become("failing" if often else "waits", now, f"{how}: {last}")

    def _start(self, one: Kept, now: float) -> None:
        missing = [name for name in one.program.needs if not self._up(name)]
        if missing:
            one.become("waits", now, f"for {', '.join(missing)}")
            return
        program, one.running = one.program, ExitStack()
        log = self.log_of(program.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            output = one.running.enter_context(log.open("ab"))
            one.process = one.running.enter_context(
                bound(
                    program.argv,
                    output,
                    environ={**self._environ, **program.extra},
                    stop_seconds=program.stop_seconds,
                    began=lambda pid: self._began(program.name, pid),
                )
            )
        except OSError as error:  # no memory, no file handle, a full disk: like a death
            self._died(one, now, f"could not be started, {error}")
            return
        one.restarts += one.pid is not None
        one.pid, one.since = one.process.pid, now
        one.state, one.why = ("starts", "") if one.state != "failing" else ("failing", one.why)

    def _up(self, name: str) -> bool:
        return name not in self.kept or self.kept[name].state == "up"


def answers(url: str) -> bool:
    """Whether the URL answers with 200 now."""
    try:
        return httpx.get(url, timeout=ASK_SECONDS, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def write_state(path: Path, told: Sequence[Mapping[str, Any]]) -> None:
    """Replace the file in which other commands see how the programs do."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({"at": time.time(), "pid": os.getpid(), "programs": list(told)}))
    os.replace(beside, path)


def read_state(path: Path, *, now: float) -> list[dict[str, Any]]:
    """What `write_state` wrote; nothing where that was too long ago to be so now."""
    try:
        stored = json.loads(path.read_text())
        fresh = abs(now - float(stored["at"])) < STALE_SECONDS
        return [dict(one) for one in stored["programs"]] if fresh else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
