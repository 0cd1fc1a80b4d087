"""What commands print: with `--json` machine output alone on stdout, for people otherwise.

Logs, progress and errors go to stderr. Knows nothing of what is printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from configuration.prompts import CONTROL

Progress = Callable[[int, int, str], None]  # done, total, what is being done
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]

_machine: ContextVar[IO[str] | None] = ContextVar("machine", default=None)


@contextmanager
def machine_output(wanted: bool) -> Iterator[IO[str] | None]:
    """With `wanted`, stdout is kept for `emit`: what any library prints goes to stderr instead."""
    if not wanted:
        yield None
        return
    kept = _machine.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield _machine.get()
    finally:
        _machine.reset(kept)


def machine() -> IO[str] | None:
    """Where machine output goes; None where people read."""
    return _machine.get()


def emit(record: Any, text: str | Sequence[str]) -> None:
    """One result: `record` as one line of JSON where `--json` was given, else `text`."""
    programs = _machine.get()
    if programs is not None:
        read = printed(json.dumps(plain(record), ensure_ascii=False), programs)
    else:
        read = printed(text if isinstance(text, str) else "\n".join(text), sys.stdout)
    if not read:
        raise typer.Exit(4)


def printed(line: str, out: IO[str]) -> bool:
    """Prints at once; False where whoever read `out` has gone. Nothing more reaches them then."""
    try:
        print(line, file=out, flush=True)
    except BrokenPipeError:
        # what is said while the command ends, and flushed at its very end, must not fail again
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)
        return False
    return True


def plain(value: Any) -> Any:
    """Records, paths and enumerations as what JSON has; not-a-number as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and value != value or value in (float("inf"), float("-inf")):
        return None
    return value


def visible(text: str) -> str:
    """Text of files and servers on one line: what would steer a terminal is shown as its escape."""
    return CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns lined up; the first row is their heading. Text stays left, figures go right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def figure(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A callback that draws a bar with the time left on stderr, one per thing that is done.

    What was done to its end, or goes back, is being done again: its bar and time begin anew.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True))
    known: dict[str, Any] = {}
    before: dict[str, tuple[int, int]] = {}

    def report(done: int, total: int, what: str) -> None:
        if what not in known:
            known[what] = bars.add_task(what, total=total, completed=done)
        else:
            last, end = before[what]
            if done < last or (last >= end and (done, total) != (last, end)):
                bars.reset(known[what], total=total, completed=done)
        before[what] = (done, total)
        bars.update(known[what], completed=done, total=total)
        bars.start()  # not earlier: without any bar it leaves an empty line

    try:
        yield report
    finally:
        if known:
            bars.stop()
