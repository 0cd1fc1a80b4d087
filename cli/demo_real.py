"""The demo's own models: SmolLM2-135M-Instruct, its LoRA for docstrings, the standard library.

With a target of the user's own, the adapter is trained on the spot and so is the first draft: what
is shipped fits SmolLM2 only.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.demo_story import JUDGING, Run, Story, written
from speculation.records import Prompt
from training.corpus import Documented, apart, documented, standard_library

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "docstrings"
SHORTEST, LONGEST = 40, 200  # tokens of a docstring: long enough that decoding dominates
LONGEST_PROMPT = 320  # tokens of the source, without the chat template
ANSWER_TOKENS = 80  # of every answer: learnt from, judged and shown
TRAIN, TRAFFIC = 1000, 24  # prompts; the recipe takes as many as it needs


def real_story(home: Path, target: str | None, *, from_scratch: bool, prompts: int | None) -> Story:
    """The demo's story. Raises ValueError for what is missing, with what to do."""
    own = target is not None
    if not own and not from_scratch and not (EXAMPLES / "draft" / "config.json").is_file():
        raise ValueError(
            f"{EXAMPLES / 'draft'} holds no draft: run the demo from a clone of the repository, "
            "or give --from-scratch to train one"
        )

    def first(out: Path) -> Path:
        return _copied(target, out) if target is not None else _unpacked(out)

    def second(base: Path, out: Path, run: Run) -> Path:
        from training.adapter import merge

        adapter = EXAMPLES / "adapter"
        if own:
            adapter = _fine_tuned(base, home / "work" / "adapter", run)
        return merge(base, adapter, out)

    return Story(
        first_release=first,
        second_release=second,
        initial_draft=None if own or from_scratch else EXAMPLES / "draft",
        prompts=docstring_prompts,
        evaluation_prompts=prompts or JUDGING,
        max_tokens=ANSWER_TOKENS,
        recipe={"max_tokens": ANSWER_TOKENS},  # no more than the gate and the traffic read
    )


def docstring_prompts(target: Path) -> dict[str, Sequence[Prompt]]:
    """Train, evaluation and traffic: of the standard library, each function in one of them only.

    What taught the shipped draft is in the first alone, whatever rule held things out then.
    """
    from tokenizers import Tokenizer

    from evaluation.samples import is_known
    from flows.lineage import learned

    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))

    def fitting() -> Iterator[Documented]:
        for entry in documented(standard_library()):
            if not SHORTEST <= len(tokenizer.encode(entry.docstring).ids) <= LONGEST:
                continue
            if len(tokenizer.encode(entry.prompt).ids) <= LONGEST_PROMPT:
                yield entry

    entries = list(fitting())
    random.Random(0).shuffle(entries)
    seen, held_out = apart(entries)
    known = learned(str(EXAMPLES / "draft")) or frozenset()
    unseen = [p for p in map(_prompt, held_out) if not is_known(p, known)]
    return {
        "train": [_prompt(entry) for entry in seen[:TRAIN]],
        "traffic": unseen[:TRAFFIC],
        "evaluation": unseen[TRAFFIC:],
    }


def _prompt(entry: Documented) -> Prompt:
    message = {"role": "user", "content": entry.prompt}
    return Prompt(entry.name, (message,), entry.docstring, f"docstring-{entry.kind}", "en")


def _unpacked(out: Path) -> Path:
    from training.smollm2 import unpack

    return unpack(out)


def _copied(target: str, out: Path) -> Path:
    """The user's own target: a folder, or the name of a repository on the Hugging Face hub.

    Raises FolderError (a ValueError) for what is no model, before any of it is kept.
    """
    from registry.fingerprint import fingerprint

    folder = Path(target).expanduser()

    def copy(beside: Path) -> None:
        fingerprint(folder)
        shutil.copytree(
            folder, beside, dirs_exist_ok=True, ignore=lambda where, names: _not_ours(names)
        )

    def download(beside: Path) -> None:
        _downloaded(target, beside)
        fingerprint(beside)

    return written(out, copy if folder.is_dir() else download)


def _not_ours(names: Sequence[str]) -> set[str]:
    return {
        name for name in names if name.startswith(".") or name.endswith((".bin", ".pt", ".gguf"))
    }


def _downloaded(name: str, into: Path) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(
            name,
            local_dir=into,
            allow_patterns=["*.safetensors", "*.json", "*.jinja", "*.model"],
            endpoint=os.environ.get("HF_ENDPOINT"),  # a mirror of the user's; None is the hub
        )
    except Exception as error:  # the hub's client lets many kinds through
        raise ValueError(
            f"got --target {name}, wanted a model folder or the name of a model on the Hugging "
            f"Face hub that can be fetched: {error}"
        ) from error


def _fine_tuned(base: Path, out: Path, run: Run) -> Path:
    """An adapter for a target of the user's own, by the script that made the shipped one."""
    if (out / "adapter_model.safetensors").is_file():
        return out
    script = EXAMPLES / "finetune.py"
    if not script.is_file():
        raise ValueError(f"{script} is missing: run the demo from a clone of the repository")
    beside = out.with_name(f".{out.name}.new")
    command = [sys.executable, str(script), "--target", str(base), "--out", str(beside)]
    run("finetune", command)
    shutil.rmtree(out, ignore_errors=True)
    beside.rename(out)
    return out
