"""What the loop did, a line each: read to decide what it may still do, and what is left undone.

A key is noted once, so noting it again after a kill changes nothing. Knows files; decides nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any


def note(home: Path, key: str, what: str, pairing: str, **facts: Any) -> bool:
    """Write down that `what` happened to a pairing, with JSON facts; False where `key` is known.

    It is on the disk when this returns.
    """
    path = _path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)  # freed with the file, and so with its process
        ledger.seek(0)
        stored = ledger.read()
        if any(entry["key"] == key for entry in _parsed(stored)):
            return False
        entry = {"key": key, "what": what, "pairing": pairing, "at": time.time(), **facts}
        torn = (
            b"\n" if stored and not stored.endswith(b"\n") else b""
        )  # of a writer that was killed
        ledger.write(torn + json.dumps(entry).encode() + b"\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return True


def entries(home: Path, *, since: float = 0.0) -> list[dict[str, Any]]:
    """What was noted from `since` on, in its order; nothing where nothing was yet."""
    try:
        stored = _path(home).read_bytes()
    except FileNotFoundError:
        return []
    return [entry for entry in _parsed(stored) if entry["at"] >= since]


def _path(home: Path) -> Path:
    return home / "flows" / "ledger.jsonl"


def _parsed(stored: bytes) -> list[dict[str, Any]]:
    """The entries of a ledger's bytes; a line that was torn is passed over."""
    found = []
    for line in stored.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and {"key", "what", "pairing", "at"} <= entry.keys():
            found.append(entry)
    return found
