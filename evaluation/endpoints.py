"""Starts a server as a child process, waits until it answers, and always ends it.

Knows processes, ports and one URL that says ready. Knows nothing of models or of what is served:
the argv comes from the caller.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

POLL_SECONDS = 0.1
TAIL_LINES = 20

# Run by the child before it becomes the server: ask Linux for SIGTERM when the parent is gone, and
# leave at once if it went before we could ask. A launcher and not `preexec_fn`, because running
# Python between fork and exec is unsafe in a process with threads (torch, Prefect and httpx have).
# A terminal may stop a process of a group in its background that writes to it; ours go on.
_BOUND_TO_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before the server began")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot start {sys.argv[2]}: {error}")
"""


class EndpointError(RuntimeError):
    """A server that did not become ready. The message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that answered ready."""

    url: str  # scheme, host and port, without a path; empty where it answers nowhere
    pid: int
    log: Path
    exit_code: Callable[[], int | None]  # None while it runs; below 0, the signal that ended it


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now. Another process may take it before the caller does."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file; a word for it when there is nothing."""
    try:
        with log.open("rb") as stored:
            stored.seek(max(0, log.stat().st_size - 64 * 1024))
            text = stored.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


@contextmanager
def started(
    argv: Sequence[str],
    *,
    ready_url: str | None,  # None: it answers nowhere, so there is nothing to wait for
    log: Path,
    timeout_seconds: float = 120.0,
    environ: Mapping[str, str] | None = None,  # None: what this process has
    stop_seconds: float = 10.0,  # from SIGTERM to SIGKILL
    began: Callable[[int], None] = lambda pid: None,  # told of the child before it is ready
) -> Iterator[Endpoint]:
    """Run `argv`, wait until `ready_url` answers 200, yield where it is, end it on the way out.

    The child and what it starts are a process group of their own: Ctrl-C in a terminal reaches this
    process alone, which then ends its servers in order, the last one to be needed last. On Linux it
    gets SIGTERM when the *thread* that entered this block ends: enter and leave in the same thread.
    Output is appended to `log`.

    Raises EndpointError when the child ends or the time is over before it is ready, or when
    something else already answers there. Any other error leaving the block while the child is
    dead carries the end of its log as a note.
    """
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        if ready_url is not None and _answers(client, ready_url) is not None:
            raise EndpointError(
                f"something already answers at {ready_url}: choose another port or end it"
            )
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("ab") as output,
            bound(argv, output, environ=environ, stop_seconds=stop_seconds, began=began) as child,
        ):
            try:
                if ready_url is not None:
                    _wait_until_ready(client, child, argv, ready_url, log, timeout_seconds)
                yield Endpoint(_base(ready_url), child.pid, log, child.poll)
            except EndpointError:
                raise
            except BaseException as error:  # only annotated: why the child died explains any
                if child.poll() is not None:
                    error.add_note(f"{_ended(argv, child)}\n{tail(log)}")
                raise


@contextmanager
def bound(
    argv: Sequence[str],
    output: IO[Any],
    *,
    environ: Mapping[str, str] | None = None,  # None: what this process has
    stop_seconds: float = 10.0,  # from SIGTERM to SIGKILL
    began: Callable[[int], None] = lambda pid: None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `argv` as a child that goes when this process goes, and end it on the way out.

    Enter and leave in the same thread, as of `started`. `began` gets its process id right after the
    start. What it prints, on stdout and stderr, goes to `output`.
    """
    child = subprocess.Popen(
        _bound_to_this_process(argv),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=None if environ is None else dict(environ),
        process_group=0,
    )
    try:
        began(child.pid)
        yield child
    finally:
        _end(child, stop_seconds)


def ending(code: int) -> str:
    """How a process ended, in words, from its exit code."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _base(ready_url: str | None) -> str:
    if ready_url is None:
        return ""
    url = httpx.URL(ready_url)
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _bound_to_this_process(argv: Sequence[str]) -> list[str]:
    if not argv:
        raise ValueError("got an empty argv, wanted the server's command line")
    if not sys.platform.startswith("linux"):
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _BOUND_TO_PARENT, str(os.getpid()), *argv]


def _wait_until_ready(
    client: httpx.Client,
    child: subprocess.Popen[bytes],
    argv: Sequence[str],
    ready_url: str,
    log: Path,
    timeout_seconds: float,
) -> None:
    deadline = time.monotonic() + timeout_seconds
    answer: str | None = None
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise EndpointError(
                f"{_ended(argv, child)} before it was ready; the end of {log}:\n{tail(log)}"
            )
        answer = _answers(client, ready_url)
        if answer == "200" and child.poll() is None:
            return
        time.sleep(POLL_SECONDS)
    raise EndpointError(
        f"{argv[0]} was not ready after {timeout_seconds:g} s ({ready_url} answered "
        f"{answer or 'nothing'}); the end of {log}:\n{tail(log)}"
    )


def _answers(client: httpx.Client, url: str) -> str | None:
    """The status a URL answers with, None when nobody does."""
    try:
        return str(client.get(url).status_code)
    except httpx.TransportError:
        return None


def _ended(argv: Sequence[str], child: subprocess.Popen[bytes]) -> str:
    return f"{' '.join(argv[:3])} {ending(child.returncode)}"


def _end(child: subprocess.Popen[bytes], stop_seconds: float) -> None:
    """SIGTERM, wait, SIGKILL; whatever the child left behind goes too."""
    family = _descendants(child.pid) if child.poll() is None else []
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            family = _descendants(child.pid) or family
            child.kill()
            child.wait()
    for pid, born in family:  # a worker process whose parent went without it
        if born and _born(pid) == born:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # One that was killed has left its workers to nobody, and they are in no family any more: but
    # in its group, whose id is theirs for as long as one of them lives.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _descendants(pid: int) -> list[tuple[int, str]]:
    """Children of children with their start times; empty where /proc does not tell."""
    found: list[tuple[int, str]] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in listing.read_text().split()]
        except OSError:  # it ended while we looked
            continue
        for child in children:
            found += [(child, _born(child)), *_descendants(child)]
    return found


def _born(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
