"""Keeps finished samples on disk while a measurement runs, so that a killed one goes on.

A JSONL file. The first line says what the samples are samples of; every further line is one. A
sample is on disk before it is counted as done. Knows lines and their header, not what they mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

FORMAT = "paceline measurement journal 5"  # 4 did not tell what the server was started with


class JournalError(ValueError):
    """A journal with a line inside it that is no sample."""


class Journal:
    """Samples that belong to one `header`. One process at a time; append from any thread.

    A journal of other samples (another candidate, release, draft length, sampling, set of prompts
    or start of the server) is never mixed with these: it is put aside under a name of its own, and
    `put_aside` says where and what differs.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.samples: list[dict[str, Any]] = []
        self.put_aside: str | None = None  # in a sentence for people; None: nothing was
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted = json.loads(json.dumps({"format": FORMAT, **header}))
        stored = self._lines()
        if stored and stored[0] == wanted:
            self.samples = stored[1:]
            self._file: BinaryIO = path.open("ab")
            return
        if stored:
            digest = hashlib.sha256(json.dumps(stored[0], sort_keys=True).encode()).hexdigest()
            aside = path.rename(path.with_name(f"{path.name}.of-{digest[:8]}"))
            self.put_aside = (
                f"{path} holds samples of another measurement ({_differences(stored[0], wanted)}): "
                f"it is put aside as {aside.name}, and all is measured anew"
            )
        self._file = path.open("wb")
        self._append(wanted)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Store one finished sample."""
        self._append(sample)
        self.samples.append(dict(sample))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        # A lone surrogate, half an emoji cut off by the token limit, must not end the measurement.
        with self._lock:
            self._file.write(text.encode("utf-8", "backslashreplace") + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _lines(self) -> list[dict[str, Any]]:
        """What is stored, without a last line that was cut off when its writer was killed."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as stored:
                stored.truncate(len(whole))
        lines = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise JournalError(
                    f"{self.path}: line {number} is not JSON ({error}); wanted a sample a line: "
                    "delete the file to measure anew"
                ) from error
        return lines


def _differences(stored: object, wanted: Mapping[str, Any]) -> str:
    """What two headers have otherwise: each name with the value that is stored and the one now."""
    ours = _flat(wanted)
    theirs = _flat(stored) if isinstance(stored, Mapping) else {}
    if theirs.get("format") != ours["format"]:
        return "of an earlier version or another program"
    return "; ".join(
        f"{name} {_short(theirs.get(name))} and now {_short(ours.get(name))}"
        for name in dict.fromkeys((*ours, *theirs))
        if theirs.get(name) != ours.get(name)
    )


def _flat(header: Mapping[str, Any]) -> dict[str, Any]:
    """With what is named in a field beside the fields."""
    found: dict[str, Any] = {}
    for name, value in header.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def _short(value: object) -> str:
    """On one line, whatever a server told."""
    if value is None:
        return "none"
    return json.dumps(value[:16] if isinstance(value, str) else value)
