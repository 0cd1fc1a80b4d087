"""One training step as a process of its own: python -m training.main SPEC, a file of JSON.

Two reasons. OpenMP's helper threads wait awake only while there are no more of them than cores,
and every thread that once ran a parallel operation keeps its own: in a process where another thread
had, regenerating took 1.7 times as long (2 cores). And what a step took of memory goes with it.

Prints one JSON object a line: {"progress": [done, total, what]}, and at the end {"result": path} or
{"error": message, "fault": whether it is one, and no caller's mistake}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speculation.records import Prompt
from training.progress import Progress
from training.recipe import Recipe


def regenerate(spec: Mapping[str, Any], progress: Progress) -> Path:
    """The target's answers to `prompts`, in the folder `out`."""
    from training.regenerate import regenerate

    return regenerate(
        Path(spec["target"]),
        [Prompt(**{**each, "messages": tuple(each["messages"])}) for each in spec["prompts"]],
        Path(spec["out"]),
        recipe=Recipe(**spec["recipe"]),
        device=spec["device"],
        adapters={name: Path(folder) for name, folder in spec.get("adapters", {}).items()},
        progress=progress,
    )


def distil(spec: Mapping[str, Any], progress: Progress) -> Path:
    """The draft that learned from `responses`, from the draft `start` where there is one."""
    from training.distill import distill

    return distill(
        Path(spec["target"]),
        Path(spec["responses"]),
        Path(spec["out"]),
        recipe=Recipe(**spec["recipe"]),
        start=None if spec["start"] is None else Path(spec["start"]),
        device=spec["device"],
        progress=progress,
    )


def merge(spec: Mapping[str, Any], progress: Progress) -> Path:
    """The release that the LoRA `adapter` makes of `base`, in the folder `out`."""
    from training.adapter import merge

    return merge(Path(spec["base"]), Path(spec["adapter"]), Path(spec["out"]))


def fits(spec: Mapping[str, Any], progress: Progress) -> Path:
    """The folder `target`, where its weights fit the device that trains and measures at all."""
    from training.room import check_fits

    return check_fits(Path(spec["target"]))


def traffic(spec: Mapping[str, Any], progress: Progress) -> Path:
    """What was asked in the captured `exchanges`, as prompts in the file `out`."""
    from training.traffic import write_asked

    return write_asked(Path(spec["exchanges"]), Path(spec["target"]), Path(spec["out"]))


STEPS: Mapping[str, Callable[[Mapping[str, Any], Progress], Path]] = {
    "regenerate": regenerate,
    "distil": distil,
    "merge": merge,
    "fits": fits,
    "traffic": traffic,
}


def main(argv: list[str]) -> int:
    """Run the step that the file argv[1] asks for; 0, 2 for a caller's mistake, 4 for a fault."""

    def tell(**line: Any) -> None:
        print(json.dumps(line), flush=True)

    if len(argv) != 2:
        tell(error=f"got {len(argv) - 1} arguments, wanted one file of JSON", fault=False)
        return 2
    try:
        spec = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
        found = STEPS[spec["step"]](
            spec, lambda done, total, what: tell(progress=[done, total, what])
        )
    except ValueError as error:
        tell(error=str(error), fault=False)
        return 2
    except Exception as error:  # the edge of the process: whoever started it is to know why
        tell(error=f"{type(error).__name__}: {error}", fault=True)
        return 4
    tell(result=str(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
