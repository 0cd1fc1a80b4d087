"""Make the demo's first draft: a head distilled from the un-tuned SmolLM2-135M-Instruct.

    python examples/docstrings/make_draft.py --target FOLDER --work FOLDER --out FOLDER

The prompts are the standard library's functions and classes that the demo never asks about (four
in five, by the hash of their names). Stopped at any moment, the same command goes on. Beside the
draft it leaves how it was made: recipe.json, curves.json and the hashes of the prompts.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

from flows.lineage import write_lineage
from speculation.records import Prompt
from training.corpus import apart, documented, standard_library
from training.distill import distill
from training.recipe import Recipe
from training.regenerate import regenerate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--work", type=Path, required=True, help="folder for responses, some GB")
    parser.add_argument("--out", type=Path, required=True, help="folder for the draft")
    parser.add_argument("--responses", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()

    recipe = Recipe(responses=arguments.responses, epochs=arguments.epochs)
    prompts = prompts_of(recipe)
    started = time.monotonic()

    def show(done: int, total: int, what: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {done} of {total} {what}", file=sys.stderr)

    responses = regenerate(
        arguments.target, prompts, arguments.work / "responses", recipe=recipe, progress=show
    )
    draft = distill(
        arguments.target, responses, arguments.work / "draft", recipe=recipe, progress=show
    )
    told = write_lineage(draft, responses, prompts, recipe)
    shutil.copytree(draft, arguments.out, dirs_exist_ok=True)
    for path in (told, draft.parent / "recipe.json", draft.parent / "curves.json"):
        shutil.copy2(path, arguments.out.parent)


def prompts_of(recipe: Recipe) -> list[Prompt]:
    """All that may be asked, in the order in which it is."""
    prompts = [
        Prompt(entry.name, ({"role": "user", "content": entry.prompt},))
        for entry in apart(documented(standard_library()))[0]
    ]
    random.Random(recipe.seed).shuffle(prompts)
    return prompts


if __name__ == "__main__":
    main()
