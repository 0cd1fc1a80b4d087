"""What a retrain took and came to, in the ledger: what the limits of a day are counted from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from prefect.runtime import flow_run

from flows.ledger import note

ENDED = "ended"  # the ledger's word


@contextmanager
def accounted(home: Path, pairing: str, release: str, cause: str) -> Iterator[dict[str, Any]]:
    """Count the block's seconds, and what it puts into the dict that it is given: phase, promoted,
    version. What ends by an exception counts too; what is killed cannot."""
    told: dict[str, Any] = {}
    clock = time.monotonic()
    try:
        yield told
    finally:
        facts = {"phase": "", "promoted": False, "version": None, **told}
        facts |= {"release": release, "cause": cause, "seconds": time.monotonic() - clock}
        note(home, f"{ENDED}:{flow_run.id or uuid4()}:{uuid4().hex[:8]}", ENDED, pairing, **facts)
