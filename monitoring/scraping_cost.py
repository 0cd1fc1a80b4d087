"""What one look at very many replicas costs: fetching, reading, deciding and storing.

A child process answers for all of them with pages like vLLM's, whose counters grow; this one looks
as the monitor does. Knows how to measure; what is measured is the monitor's own code.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from monitoring.monitor import Monitor, Paths
from monitoring.settings import Source
from monitoring.state import load

DRAFT_LEN = 4
GROWN = {"drafts": 100, "draft_tokens": 400, "accepted_tokens": 215}  # between two looks
GROWN_BY_POSITION = (75, 60, 45, 35)
OTHER_LINES = 500  # of the page, that nobody asks for


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one look, medians."""

    replicas: int
    seconds: float  # by the clock
    cpu_seconds: float  # of this process
    page_bytes: int
    windows: int  # increases that were judged, of all looks together


def measure(home: Path, *, replicas: int, looks: int = 5, one_core: bool = True) -> Cost:
    """Look that often at that many, after one look that nothing is compared with.

    `one_core` keeps this process to one of its cores while it measures, where the system allows it.
    """
    spent, used = [], []
    with _answering() as (port, page_bytes), _pinned(one_core):
        urls = tuple(f"http://127.0.0.1:{port}/{n}" for n in range(replicas))
        source = Source("vllm", urls, pair="p-1", drafter="head", draft_len=DRAFT_LEN)
        paths = Paths(home)
        with Monitor({"fleet": source}, paths, timeout_seconds=60.0) as monitor:
            monitor.poll()
            for _ in range(looks):
                began, cpu = time.perf_counter(), time.process_time()
                monitor.poll()
                spent.append(time.perf_counter() - began)
                used.append(time.process_time() - cpu)
        seen = sum(one.seen for one in load(paths.state).watched)
    return Cost(replicas, median(spent), median(used), page_bytes, seen)


def page(look: int) -> bytes:
    """What a replica says at its so-manieth look."""
    labels = 'engine="0",model_name="target"'
    lines = [
        f"vllm:spec_decode_num_{name}_total{{{labels}}} {float(look * grown)}"
        for name, grown in GROWN.items()
    ]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} '
        f"{float(look * grown)}"
        for place, grown in enumerate(GROWN_BY_POSITION)
    ]
    lines += [
        f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{n / 100}"}} {float(look * n)}'
        for n in range(OTHER_LINES)
    ]
    return "\n".join((*lines, "")).encode()


@contextmanager
def _answering() -> Iterator[tuple[int, int]]:
    """A process that answers for every replica: its port, and how long a page is."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs,), daemon=True)
    child.start()
    try:
        yield ours.recv(), len(page(1))
    finally:
        ours.send(None)
        child.join(10)
        if child.is_alive():
            child.kill()
            child.join()


def _serve(pipe: Connection) -> None:
    asyncio.run(_served(pipe))


async def _served(pipe: Connection) -> None:
    looks: Counter[str] = Counter()
    pages: dict[int, bytes] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                path = head[1].decode()
                looks[path] += 1
                look = looks[path]
                if look not in pages:
                    body = page(look)
                    told = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n"
                    pages[look] = f"{told}content-type: text/plain\r\n\r\n".encode() + body
                writer.write(pages[look])
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    async with server:
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        server.close()


@contextmanager
def _pinned(one_core: bool) -> Iterator[None]:
    """Keep to the last core there is, so that the child has the others."""
    cores = os.sched_getaffinity(0) if one_core and hasattr(os, "sched_getaffinity") else set()
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
