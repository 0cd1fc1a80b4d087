"""What a draft was made of, told by the files beside its folder: recipe.json, curves.json and
prompts.json, which holds hashes of the questions whose answers it learned from.

prompts.json names its draft by digest, so that what happens to lie beside another draft is not
taken for its own. Knows nothing of Prefect or of the registry's server.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.steps import read_json, write_json
from speculation.records import WITHOUT_WEIGHTS, Prompt
from training.recipe import Recipe

if TYPE_CHECKING:
    from registry.manifest import Making

PROMPTS = "prompts.json"


def write_lineage(draft: Path, responses: Path, prompts: Iterable[Prompt], recipe: Recipe) -> Path:
    """Write prompts.json beside `draft`, which `distill` made of `responses`.

    Raises ValueError for a response to none of `prompts`.
    """
    from evaluation.samples import question_digest
    from registry.fingerprint import fingerprint_draft
    from training.responses import answers, data_digest, split

    asked = {prompt.id: prompt for prompt in prompts}
    answered = [prompt_id for prompt_id, _ in answers(responses)]
    if unknown := [prompt_id for prompt_id in answered if prompt_id not in asked]:
        raise ValueError(
            f"{responses} answers {unknown[0]!r}, which is none of the prompts: they were changed "
            "meanwhile; put them back, or regenerate the responses"
        )
    training, validation = split(answered, recipe.seed)
    told = {
        "draft": fingerprint_draft(draft).digest,
        "data": data_digest(responses),
        "train": sorted(question_digest(asked[prompt_id]) for prompt_id in training),
        "validation": sorted(question_digest(asked[prompt_id]) for prompt_id in validation),
    }
    write_json(draft.parent / PROMPTS, told)
    return draft.parent / PROMPTS


def read_lineage(draft: str) -> Making:
    """How a draft ("ngram", "none" or a folder) was made, as far as it is told beside it.

    A draft that was fetched from the registry lies beside the pair.json it was registered with.
    """
    from registry.manifest import FILE, Making, read_manifest

    if draft not in WITHOUT_WEIGHTS and (Path(draft).parent / FILE).is_file():
        return read_manifest(Path(draft).parent).making
    told = _told(draft)
    if told is None:
        return Making()
    return Making(
        recipe=read_json(Path(draft).parent / "recipe.json") or {},
        data=told["data"],
        prompts_train=tuple(told["train"]),
        prompts_validation=tuple(told["validation"]),
    )


def learned(draft: str) -> frozenset[str] | None:
    """Hashes of the questions whose answers taught a draft or chose its checkpoint: on those it is
    better than on any other, so they judge nothing. None where that is not on record."""
    made = read_lineage(draft)
    known = frozenset([*made.prompts_train, *made.prompts_validation])
    return known if known or draft in WITHOUT_WEIGHTS or _told(draft) is not None else None


def training_files(draft: str) -> list[Path]:
    """The recipe and the curves of the draft's own training; empty where they are not known."""
    if _told(draft) is None:
        return []
    paths = [Path(draft).parent / name for name in ("recipe.json", "curves.json")]
    return [path for path in paths if path.is_file()]


def _told(draft: str) -> dict[str, Any] | None:
    """prompts.json, where it is this draft's."""
    from registry.fingerprint import fingerprint_draft

    if draft in WITHOUT_WEIGHTS:
        return None
    told = read_json(Path(draft).parent / PROMPTS)
    return told if told and told.get("draft") == fingerprint_draft(draft).digest else None
