"""Whether a draft can serve a target: tokens by content, special tokens, context, shapes; and
whether a pair is of this release, draft and adapters.

A draft that cannot is an answer with its reasons, not an exception; an unreadable folder is a
`FolderError`. Reads configurations, tokenizers and small tensors; loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.answers import Compatibility as Compatibility  # callers know it as this module's
from registry.configs import (
    architecture_of,
    context_of,
    is_head,
    quantization_of,
    text_config,
    whole,
)
from registry.fingerprint import Draft, Release, difference
from registry.folders import config_of, confined
from registry.heads import head_fits
from registry.manifest import PairManifest
from registry.tokens import token_table, tokenizer_of
from registry.vocabulary import (
    different_special_tokens,
    different_stops,
    different_templates,
    different_tokens,
    unnamed_rows,
)
from registry.weights import shaped_weights_of


def compare(target_folder: Path, draft: str | Path) -> Compatibility:
    """Whether `draft` ("ngram", "none", or a folder) can propose tokens for the target.

    `FolderError` where the weights of either have not the shapes that its config.json tells.
    """
    target = config_of(target_folder)
    if draft in ("ngram", "none"):
        return Compatibility(True)
    folder = Path(draft)
    config = config_of(folder)
    head = is_head(architecture_of(config, folder))
    for one in (target_folder,) if head else (target_folder, folder):
        shaped_weights_of(one)
    reasons: list[str] = []
    notes: list[str] = []
    theirs = _tokens(target_folder) if not head or _has_tokens(target_folder) else {}
    if _has_tokens(folder):
        reasons += different_tokens(theirs, _tokens(folder))
        # A head has no words of its own: what ends or begins a text is its target's.
        (notes if head else reasons).extend(different_special_tokens(target_folder, folder))
        notes += different_templates(target_folder, folder)
    elif head:
        notes.append(
            "the head carries no tokenizer.json: that its tokens are the target's is taken from "
            "the size of its vocabulary"
        )
    else:
        reasons.append("the draft has no tokenizer.json, so its tokens cannot be compared")
    if head:
        reasons += head_fits(target, target_folder, config, folder)
    else:
        reasons += different_stops(target_folder, folder)
    answer = Compatibility.of(reasons, notes)
    if answer.ok and all("vocab_size" in text_config(one) for one in (target, config)):
        rows = {"target_rows": whole(target, "vocab_size", target_folder)}
        rows |= {"draft_rows": whole(config, "vocab_size", folder)}
        answer = answer.also(unnamed_rows(max(theirs, default=-1) + 1, **rows))
    return answer.also(
        Compatibility(True, notes=tuple(_limits(target, target_folder, config, folder)))
    )


def _has_tokens(folder: Path) -> bool:
    return confined(folder, "tokenizer.json").is_file()


def _tokens(folder: Path) -> dict[int, str]:
    return token_table(tokenizer_of(folder))


def _limits(
    target: Mapping[str, Any], target_folder: Path, config: Mapping[str, Any], folder: Path
) -> list[str]:
    """What the server will have to do that nobody has to be refused for."""
    notes: list[str] = []
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
    return notes


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


def fits_adapters(manifest: PairManifest, adapters: Mapping[str, str]) -> Compatibility:
    """Whether the pair was judged with exactly these adapters of its target: name to digest."""
    judged, reasons = manifest.adapters, []
    for name in sorted(adapters.keys() | judged.keys()):
        if name not in judged:
            reasons.append(f"{manifest.pair_id} was not judged with the adapter {name}")
        elif name not in adapters:
            reasons.append(f"{manifest.pair_id} was judged with the adapter {name}, not here")
        elif adapters[name] != judged[name]:
            reasons.append(
                f"the adapter {name} is {adapters[name][:12]}, {manifest.pair_id} was judged with "
                f"{judged[name][:12]}"
            )
    return Compatibility.of(reasons, [])


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
