"""How a command ends: exit codes, and errors turned into one of them and a few plain words.

The process edge: the only place that catches what nobody else did.
"""

from __future__ import annotations

import dis
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from cli.output import machine, machine_output, printed
from cli.remedies import misnamed, named_paths, remedy
from configuration.faults import ConfigurationError
from configuration.quiet import quieten

OURS = (
    *("cli", "configuration", "evaluation", "flows", "monitoring", "registry", "serving"),
    *("speculation", "training"),
)
# what typer prints by itself and ends with; it exports only a class two below it
USAGE_ERROR: Any = typer.BadParameter.__mro__[2]


class Exit(IntEnum):
    """What the shell sees."""

    YES = 0  # done, or the answer is yes
    NO = 1  # the answer is no: the gate failed, a pair is incompatible
    BAD_INPUT = 2  # the caller has to change something
    INCONCLUSIVE = 3  # measured, and not enough to tell
    FAULT = 4  # could not reach, could not measure, or a bug
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # SIGTERM


def exit_of(phase: str, promoted: bool) -> Exit:
    """How a pair's making ended: yes only where it passed and then became champion."""
    if phase == "PASS":
        return Exit.YES if promoted else Exit.NO
    return Exit.INCONCLUSIVE if phase == "INCONCLUSIVE" else Exit.NO


class Commands(TyperGroup):
    """A typer group whose every ending has one of our exit codes."""

    def main(  # the arguments are typer's own
        self, args: Sequence[str] | None = None, *rest: Any, **named: Any
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        options = given[: given.index("--")] if "--" in given else given
        with machine_output("--json" in options), ended_by_sigterm():
            quieten(os.environ)  # before a command loads any library
            try:
                return super().main(given, *rest, **named)
            except Exception as error:  # the process edge: whatever it is, it has to be told
                code = code_of(error, named_paths(given, os.environ))
                tell_machine(told(error, code))
                print(f"paceline: {sentence(error)}", file=sys.stderr)  # the machine has its own
                if os.environ.get("PACELINE_DEBUG") == "1":
                    traceback.print_exception(error)
                sys.exit(code)

    def get_command(self, *arguments: Any) -> Any:
        """A flag takes no value, though typer's help would name the kind of one."""
        command = super().get_command(*arguments)
        for option in () if command is None else command.params:
            if getattr(option, "is_flag", False) and option.metavar is None:
                option.metavar = ""
        return command

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        with usage_told():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:  # of a subcommand too, whose arguments are read in here
        with usage_told():
            return super().invoke(ctx)


@contextmanager
def usage_told() -> Iterator[None]:
    """Tells programs what typer itself tells people and ends with: wrong usage, a bad parameter."""
    try:
        yield
    except USAGE_ERROR as error:
        tell_machine({"error": error.format_message(), "exit": error.exit_code})
        raise


def tell_machine(record: dict[str, Any]) -> None:
    """One line of JSON where `--json` was given and somebody reads it."""
    programs = machine()
    if programs is not None:
        printed(json.dumps(record), programs)


def code_of(error: BaseException, named: Sequence[Path] = ()) -> Exit:
    """A ValueError, TypeError or LookupError said by us is the caller's, and so is a place among
    the `named` that cannot be used; all else is a fault."""
    callers = isinstance(error, (ValueError, TypeError, LookupError)) and said_by_us(error)
    if callers or (isinstance(error, OSError) and misnamed(error, named)):
        return Exit.BAD_INPUT
    return Exit.FAULT


def said_by_us(error: BaseException) -> bool:
    """Whether it is of a class of ours, or a `raise` statement of ours made it: then its words are
    for people. A slip such as int("x") in our code is neither."""
    if type(error).__module__.partition(".")[0] in OURS:
        return True
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    statement = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return module.partition(".")[0] in OURS and statement == dis.opmap["RAISE_VARARGS"]


def sentence(error: Exception) -> str:
    """For people: what was got, what was wanted, what to do."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and missing.partition(".")[0] not in OURS:
        extra = EXTRAS.get(missing.partition(".")[0], "all")
        return (
            f"this command needs {missing}, which is not installed: pip install 'paceline[{extra}]'"
        )
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    if said_by_us(error):
        return f"{error}{notes}"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}: {remedy(error)}{notes}"
    words = str(error).strip() or "without a message"
    name = type(error).__name__
    return f"unexpected {name}: {words} (PACELINE_DEBUG=1 shows where){notes}"


def told(error: Exception, code: Exit) -> dict[str, Any]:
    """The same for programs."""
    record: dict[str, Any] = {"error": sentence(error), "exit": int(code)}
    if isinstance(error, ConfigurationError):
        record["source"] = error.source
        names = ("key", "got", "wanted", "do")
        record["faults"] = [{n: getattr(fault, n) for n in names} for fault in error.faults]
    return record


EXTRAS = {
    **dict.fromkeys(("mlflow", "prefect"), "control"),
    **dict.fromkeys(("h11", "starlette", "uvicorn"), "serve"),
    **dict.fromkeys(("torch", "transformers"), "train,serve"),
    **dict.fromkeys(("peft", "accelerate", "gguf"), "train"),
    "river": "monitor",
    **dict.fromkeys(("evaluate", "datasets", "rouge_score", "scipy", "matplotlib"), "evaluate"),
}


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack, so that children are ended and files closed; exit code 143."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; a test's runner may be elsewhere
        return

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(Exit.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
