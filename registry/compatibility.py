"""Whether a draft can serve a target: tokens by content, context, special tokens, shapes.

A draft that cannot is an answer with its reasons, not an exception; an unreadable folder is a
`FolderError`. Reads configurations, tokenizers and small tensors; loads no model.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.configs import (
    architecture_of,
    context_of,
    generation_of,
    is_head,
    quantization_of,
    text_config,
    whole,
)
from registry.errors import FolderError
from registry.fingerprint import Draft, Release, difference
from registry.folders import config_of, confined, weights_of
from registry.manifest import PairManifest
from registry.tensors import Tensor
from registry.tokens import special_tokens, token_table, tokenizer_of


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer. `notes` do not forbid the pair; they say what its server will have to do."""

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, reasons: list[str], notes: list[str]) -> Compatibility:
        return cls(not reasons, tuple(reasons), tuple(notes))


def compare(target_folder: Path, draft: str | Path) -> Compatibility:
    """Whether `draft` ("ngram", "none", or a folder) can propose tokens for the target."""
    target = config_of(target_folder)
    if draft in ("ngram", "none"):
        return Compatibility(True)
    folder = Path(draft)
    config = config_of(folder)
    reasons: list[str] = []
    notes: list[str] = []
    if confined(folder, "tokenizer.json").is_file():
        reasons += _tokens(target_folder, folder)
        reasons += _special_tokens(target_folder, folder)
    elif not is_head(architecture_of(config, folder)):
        reasons.append(f"{folder} has no tokenizer.json, so its tokens cannot be compared")
    if is_head(architecture_of(config, folder)):
        reasons += _head(target, target_folder, config, folder)
    ours, theirs = context_of(config, folder), context_of(target, target_folder)
    if ours < theirs:
        notes.append(
            f"the draft's context is {ours} tokens, the target's {theirs}: beyond {ours} the "
            "server decodes without it"
        )
    if quantization_of(config) != quantization_of(target):
        notes.append(
            f"quantization differs: draft {quantization_of(config) or 'none'}, target "
            f"{quantization_of(target) or 'none'}"
        )
    return Compatibility.of(reasons, notes)


def fits_release(manifest: PairManifest, release: Release) -> Compatibility:
    """Whether the pair was validated for exactly this release; the reason names what differs."""
    if manifest.release.digest == release.digest:
        return Compatibility(True)
    return Compatibility(
        False,
        (
            f"{manifest.pair_id} was validated for release {manifest.release.digest[:12]}, this is "
            f"{release.digest[:12]}: {difference(manifest.release, release)}. Measure it as a "
            "trial pair and register it for this release",
        ),
    )


def fits_draft(manifest: PairManifest, draft: Draft) -> Compatibility:
    """Whether the draft is the one that the manifest binds."""
    if (manifest.draft.kind, manifest.draft.digest) == (draft.kind, draft.digest):
        return Compatibility(True)
    return Compatibility(
        False,
        (
            f"{manifest.pair_id} binds the {manifest.draft.kind} draft "
            f"{manifest.draft.digest[:12]}, got the {draft.kind} draft {draft.digest[:12]}",
        ),
    )


def _tokens(target_folder: Path, folder: Path) -> list[str]:
    target, draft = (token_table(tokenizer_of(where)) for where in (target_folder, folder))
    for token_id in sorted(target.keys() | draft.keys()):
        ours, theirs = draft.get(token_id), target.get(token_id)
        if ours != theirs:
            differing = sum(draft.get(i) != target.get(i) for i in target.keys() | draft.keys())
            return [
                f"token {token_id} is {_shown(ours)} in the draft and {_shown(theirs)} in the "
                f"target; {differing} tokens differ. A draft must share its target's tokens"
            ]
    return []


def _shown(token: str | None) -> str:
    return "absent" if token is None else repr(token)


def _special_tokens(target_folder: Path, folder: Path) -> list[str]:
    ours, theirs = special_tokens(folder), special_tokens(target_folder)
    reasons = [
        f"{role} is {ours[role]!r} in the draft and {theirs[role]!r} in the target"
        for role in sorted(ours.keys() & theirs.keys())
        if ours[role] != theirs[role]
    ]
    ends = [
        generation_of(where, config_of(where)).get("eos_token_id")
        for where in (folder, target_folder)
    ]
    if None not in ends and ends[0] != ends[1]:
        reasons.append(f"the draft stops at the ids {ends[0]}, the target at {ends[1]}")
    return reasons


def _head(
    target: Mapping[str, Any], target_folder: Path, config: Mapping[str, Any], folder: Path
) -> list[str]:
    """A head uses its target's tokens and hidden states, so its shapes must be its target's."""
    reasons: list[str] = []
    asked, given = text_config(config), text_config(target)
    for name, ours in (
        ("vocab_size", asked.get("vocab_size")),
        ("hidden_size", asked.get("target_hidden_size", asked.get("hidden_size"))),
    ):
        if ours != given.get(name):
            reasons.append(
                f"the head was made for a target with {name} {ours}, {target_folder} has "
                f"{given.get(name)}"
            )
    layers = whole(given, "num_hidden_layers", target_folder, default=0)
    read = asked.get("eagle_aux_hidden_state_layer_ids") or ()
    if not isinstance(read, list | tuple) or any(type(layer) is not int for layer in read):
        reasons.append(f"the head reads the layers {read!r:.80}, wanted whole numbers")
    elif beyond := [layer for layer in read if not 0 <= layer <= layers]:
        reasons.append(f"the head reads layer {beyond[0]}, the target has {layers}")
    if not reasons:
        reasons += _draft_vocabulary(asked, weights_of(folder))
    return reasons


def _draft_vocabulary(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    """`d2t` holds, for each draft token, how far the target's id lies beyond the draft's."""
    vocabulary, reduced = config["vocab_size"], config.get("draft_vocab_size")
    table, head = tensors.get("d2t"), tensors.get("lm_head.weight")
    rows = vocabulary if reduced is None else reduced
    if head is not None and head.shape[:1] != (rows,):
        return [f"lm_head.weight has {_rows(head)} rows, wanted {rows} by config.json"]
    if table is None:
        return [] if rows == vocabulary else ["config.json reduces the vocabulary, d2t is missing"]
    if table.dtype != "I64" or table.shape != (rows,):
        return [f"d2t is {table.dtype} {list(table.shape)}, wanted I64 [{rows}]"]
    ids = [draft_id + beyond for draft_id, beyond in enumerate(_numbers(table))]
    for draft_id, token_id in enumerate(ids):
        if not 0 <= token_id < vocabulary:
            return [f"d2t sends draft token {draft_id} to {token_id}, beyond {vocabulary} tokens"]
    if len(set(ids)) != len(ids):
        return ["d2t sends two draft tokens to one target token"]
    return _inverse(tensors.get("t2d"), set(ids), vocabulary)


def _rows(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.shape else 0


def _inverse(table: Tensor | None, ids: set[int], vocabulary: int) -> list[str]:
    if table is None:
        return []
    if table.dtype != "BOOL" or table.shape != (vocabulary,):
        return [f"t2d is {table.dtype} {list(table.shape)}, wanted BOOL [{vocabulary}]"]
    told = {token_id for token_id, held in enumerate(b"".join(table.chunks())) if held}
    if odd := sorted(told ^ ids):
        return [f"t2d and d2t disagree about token {odd[0]}"]
    return []


def _numbers(table: Tensor) -> array[int]:
    numbers = array("q")
    numbers.frombytes(b"".join(table.chunks()))
    if numbers.itemsize != 8:
        raise FolderError(f"{table.path}: this machine has no 64-bit integers")
    return numbers
