"""How fast a folder's weights are identified, beside what else reads them: interleaved runs.

Ways: with both readers, with one, reading alone (what the disk gives), and plain `sha256sum` of the
same files, one after the other and side by side. A machine's speed drifts and others use it too, so
each turn runs every way once, every other turn backwards, and what is compared are ratios within a
turn. Knows files; knows nothing of what the digests are for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from registry.digests import READERS, Progress, digest_of_tensors, no_progress
from registry.folders import weights_of
from registry.tensors import CHUNK_BYTES, Tensor

BASE = "sha256sum"
OURS, ONE_READER, READING = "paceline", "paceline, one reader", "reading alone"
AT_ONCE = f"sha256sum, {READERS} at once"


@dataclass(frozen=True, slots=True)
class ReadingSpeed:
    """One way of reading the weights, over all turns."""

    name: str
    gigabytes_per_second: float  # 10^9 bytes; median of the turns
    ratios: tuple[float, ...]  # over sha256sum in the same turn

    @property
    def ratio(self) -> float:
        return median(self.ratios)


def ways_of(folder: Path) -> dict[str, Callable[[], object]]:
    """The ways by name. Raises FolderError for a folder without weights, and FileNotFoundError
    where this machine has no `sha256sum`."""
    if shutil.which(BASE) is None:
        raise FileNotFoundError(f"{BASE} is not installed: it is what is measured beside")
    tensors = weights_of(folder)
    paths = sorted({str(tensor.path.resolve()) for tensor in tensors.values()})

    def hashed(names: list[str]) -> None:
        subprocess.run([BASE, *names], check=True, stdout=subprocess.DEVNULL)

    def read() -> None:
        for path in paths:
            _read(Path(path))

    def at_once() -> None:
        with ThreadPoolExecutor(READERS) as both:
            list(both.map(hashed, ([path] for path in paths)))

    ways: dict[str, Callable[[], object]] = {
        BASE: lambda: hashed(paths),
        OURS: lambda: digest_of_tensors(tensors),
        ONE_READER: lambda: [tensor.content_digest() for tensor in tensors.values()],
        READING: read,
    }
    return {**ways, AT_ONCE: at_once} if len(paths) > 1 else ways


def measure(
    folder: Path,
    *,
    turns: int,
    cold: bool = False,
    ways: Mapping[str, Callable[[], object]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = no_progress,
) -> list[ReadingSpeed]:
    """Each way's speed over `turns` turns. `cold` has the kernel forget the files before each run,
    so that they come from the disk; else they come from memory after a first reading."""
    chosen = ways_of(folder) if ways is None else dict(ways)
    tensors = weights_of(folder)
    paths = {tensor.path for tensor in tensors.values()}
    total = sum(path.stat().st_size for path in paths)
    if not cold:
        for path in paths:
            _read(path)
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in range(turns):
        for number, name in enumerate(list(chosen)[:: 1 if turn % 2 == 0 else -1]):
            if cold:
                forget(tensors)
            began = clock()
            chosen[name]()
            seconds[name].append(clock() - began)
            progress(turn * len(chosen) + number + 1, turns * len(chosen), "runs")
    return [
        ReadingSpeed(
            name=name,
            gigabytes_per_second=median(total / taken / 1e9 for taken in times),
            ratios=tuple(b / own for b, own in zip(seconds[BASE], times, strict=True)),
        )
        for name, times in seconds.items()
    ]


def forget(tensors: Mapping[str, Tensor]) -> None:
    """Have the kernel drop what it holds of the files in memory, as far as it is on the disk."""
    for path in {tensor.path for tensor in tensors.values()}:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(CHUNK_BYTES):
            pass
