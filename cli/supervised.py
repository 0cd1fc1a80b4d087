"""Runs a program to its end while the servers that it needs live.

A client of a server that is gone goes on asking for minutes, and Prefect's and MLflow's do: so the
program is a child, and it is ended at once where it waits for nobody.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import IO, Any

from evaluation.endpoints import bound

CHECK_SECONDS = 1.0  # between two looks at the servers
STOP_SECONDS = 10.0  # from SIGTERM to SIGKILL: to tell Prefect that the run was cut short


def supervised(
    argv: Sequence[str],
    output: IO[Any],
    *,
    check: Callable[[], None],  # raises where a server that the program needs is gone
    environ: Mapping[str, str] | None = None,  # None: what this process has
    stop_seconds: float = STOP_SECONDS,
    began: Callable[[int], None] = lambda pid: None,
) -> int:
    """The program's exit code, below 0 the signal that ended it. Raises what `check` raises.

    What it prints goes to `output`. It is ended where this raises, and where this process goes.
    """
    with bound(argv, output, environ=environ, stop_seconds=stop_seconds, began=began) as child:
        while child.poll() is None:
            check()
            with suppress(TimeoutExpired):
                child.wait(CHECK_SECONDS)
        return int(child.returncode)


@contextmanager
def relayed() -> Iterator[IO[bytes]]:
    """An output for a child whose lines come out on this process' stderr, past its progress bars.

    Written by the child itself they would tear the bars that are drawn there.
    """
    reading, writing = os.pipe()

    def relay() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                print(line, end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=relay, name="relay", daemon=True)
    thread.start()
    with os.fdopen(writing, "wb") as output:
        yield output
    thread.join()
