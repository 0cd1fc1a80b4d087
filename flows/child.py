"""Runs a training step in a process of its own, which goes when this one does.

Knows `python -m training.main` and what it prints. A flow's process has many threads and lives
long: why that is no place to train is said there.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evaluation.endpoints import bound, ending
from flows.steps import write_json

TAIL_LINES = 20


def in_child(step: str, spec: Mapping[str, Any], progress: Callable[[int, int, str], None]) -> Path:
    """The result of a step of `training.main`. Its folder is spec["out"], where the spec is kept.

    Raises ValueError where the step does (a caller's mistake), and for everything else RuntimeError
    with what it said last.
    """
    asked = Path(spec["out"]).with_suffix(".spec.json")
    asked.parent.mkdir(parents=True, exist_ok=True)
    write_json(asked, {**spec, "step": step})
    told: dict[str, Any] = {}
    noise: deque[str] = deque(maxlen=TAIL_LINES)
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        output = os.fdopen(writing, "wb")
        try:
            with bound([sys.executable, "-m", "training.main", str(asked)], output) as child:
                output.close()  # the child's copy is the last: its end is the end of the lines
                for line in lines:
                    said = _said(line)
                    if said is None:
                        noise.append(line.rstrip())
                    elif "progress" in said:
                        progress(*said["progress"])
                    else:
                        told = said
                code = child.wait()
        finally:
            output.close()
    if "result" in told:
        return Path(told["result"])
    if "error" in told and not told["fault"]:
        raise ValueError(told["error"])
    last = told.get("error") or "\n".join(noise)
    raise RuntimeError(f"the step {step} {ending(code)}: {last}")


def _said(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
