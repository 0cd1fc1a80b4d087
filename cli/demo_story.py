"""What the demo tells its story with: two releases of a target, a first draft, and prompts.

Knows which models and prompts; knows nothing of servers, flows or verdicts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speculation.records import Prompt

PROMPTS = ("train", "evaluation", "traffic")
JUDGING, JUDGING_TINY = 60, 24  # prompts that judge a pair, where nobody says how many
Run = Callable[[str, Sequence[str]], None]  # a name and a command, run to its end


@dataclass(frozen=True)
class Story:
    """Everything that differs between the real demo and the tiny one."""

    first_release: Callable[[Path], Path]  # writes release 1 into a folder
    second_release: Callable[[Path, Path, Run], Path]  # release 1's folder -> release 2's
    initial_draft: Path | None  # of release 1; None trains one
    prompts: Callable[[Path], Mapping[str, Sequence[Prompt]]]
    # the first target's folder -> PROMPTS; no prompt in two of them
    evaluation_prompts: int  # how many judge a pair
    max_tokens: int  # of an answer that is measured
    recipe: Mapping[str, Any]  # what departs from the default recipe


def written(out: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a folder beside `out` and rename it: `out` is whole or absent."""
    if not out.exists():
        beside = out.with_name(f".{out.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write(beside)
        os.replace(beside, out)
    return out
