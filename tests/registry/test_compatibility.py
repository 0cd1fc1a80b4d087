from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from registry.adapters import fingerprint_adapter
from registry.compatibility import (
    Compatibility,
    compare,
    fits_adapters,
    fits_draft,
    fits_release,
)
from registry.errors import FolderError
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.tokens import keep_tokens
from tests.registry import tiny
from tests.registry.conftest import manifest_of, pair_files


def small(folder: Path, words: list[str] | None = None, **config: Any) -> Path:
    """A draft of kind `model`: a small causal LM with a tokenizer of its own."""
    tiny.target(folder, seed=5, **config)
    if words is not None:
        tiny.write_tokenizer(folder, words)
    return folder


def test_a_draft_with_its_targets_tokens_is_compatible(target: Path, tmp_path: Path) -> None:
    for draft in (small(tmp_path / "small"), tiny.head(tmp_path / "head"), "ngram", "none"):
        answer = compare(target, draft)
        assert answer.ok, answer.reasons
        assert answer.reasons == ()


def test_two_exchanged_tokens_are_refused_and_the_first_is_named(
    target: Path, tmp_path: Path
) -> None:
    words = list(tiny.WORDS)
    words[9], words[20] = words[20], words[9]
    answer = compare(target, small(tmp_path / "small", words))
    assert not answer.ok
    assert "token 9 is 's' in the draft and 'h' in the target; 2 tokens differ" in answer.reasons[0]


def test_a_shorter_or_longer_token_table_is_refused(target: Path, tmp_path: Path) -> None:
    longer = compare(target, small(tmp_path / "longer", [*tiny.WORDS, "extra"]))
    assert f"token {len(tiny.WORDS)} is 'extra' in the draft and absent" in longer.reasons[0]


def test_rows_beyond_the_token_table_do_not_matter(target: Path, tmp_path: Path) -> None:
    padded = small(tmp_path / "padded", weights=tiny.arrays(vocabulary=64), vocab_size=64)
    for pair in ((target, padded), (padded, target)):
        answer = compare(*pair)
        assert answer.ok
        assert "those from 32 on name no token and are masked on both sides" in answer.notes[0]
    assert compare(padded, padded).notes == ()


def test_a_token_without_a_row_is_refused(target: Path, tmp_path: Path) -> None:
    narrow = small(tmp_path / "narrow", weights=tiny.arrays(vocabulary=30), vocab_size=30)
    assert compare(target, narrow).reasons == (
        "the draft has 30 rows of output for 32 tokens: token 30 has none",
    )


@pytest.mark.parametrize(
    ("rows", "config", "said"),
    [
        (
            32,
            {"vocab_size": 66},
            "model.embed_tokens.weight has 32 rows, wanted 66, the vocab_size",
        ),
        (
            66,
            {"vocab_size": 32},
            "model.embed_tokens.weight has 66 rows, wanted 32, the vocab_size",
        ),
        (32, {"hidden_size": 16}, "has 8 columns, wanted 16, the hidden_size of config.json"),
    ],
)
def test_what_config_json_says_of_the_embedding_is_held_to_the_weights(
    target: Path, tmp_path: Path, rows: int, config: dict[str, Any], said: str
) -> None:
    lying = small(tmp_path / "lying", weights=tiny.arrays(vocabulary=rows), **config)
    for do in (
        lambda: compare(target, lying),
        lambda: compare(lying, target),
        lambda: compare(lying, tiny.head(tmp_path / "head")),
        lambda: fingerprint(lying),
        lambda: fingerprint_draft(lying),
    ):
        with pytest.raises(FolderError, match=re.escape(said)):
            do()


def test_rows_that_a_model_type_has_for_pictures_are_no_lie(tmp_path: Path) -> None:
    weights = tiny.arrays(vocabulary=40)
    fingerprint(tiny.target(tmp_path / "t", weights=weights, model_type="mllama_text_model"))


def test_a_lying_output_layer_is_named(tmp_path: Path) -> None:
    weights = tiny.arrays() | {
        "lm_head.weight": tiny.arrays(vocabulary=31)["model.embed_tokens.weight"]
    }
    folder = tiny.target(tmp_path / "t", weights=weights, tie_word_embeddings=False)
    with pytest.raises(FolderError, match="lm_head.weight has 31 rows, wanted 32"):
        fingerprint(folder)


def test_a_head_that_carries_its_targets_tokens_is_compared_by_them(
    target: Path, tmp_path: Path
) -> None:
    """Two exchanged tokens leave every size as it is: without its tokens a head cannot be told."""
    head = tiny.head(tmp_path / "head")
    bare = fingerprint_draft(head)
    assert "taken from the size of its vocabulary" in compare(target, head).notes[0]
    keep_tokens(target, head)
    assert fingerprint_draft(head) == bare  # what it was made for is no part of what it is
    assert compare(target, head) == Compatibility(True)
    words = list(tiny.WORDS)
    words[9], words[20] = words[20], words[9]
    other = tiny.target(tmp_path / "other")
    tiny.write_tokenizer(other, words)
    answer = compare(other, head)
    assert not answer.ok
    assert "token 9 is 'h' in the draft and 's' in the target; 2 tokens differ" in answer.reasons[0]


def test_another_chat_template_is_noted(target: Path, tmp_path: Path) -> None:
    draft = small(tmp_path / "small")
    path = draft / "tokenizer_config.json"
    tiny.write_json(path, {**json.loads(path.read_text()), "chat_template": "{{ other }}"})
    answer = compare(target, draft)
    assert answer.ok
    assert "the chat template 'default' differs" in answer.notes[0]


def test_other_special_and_stop_tokens_are_refused(target: Path, tmp_path: Path) -> None:
    draft = small(tmp_path / "small")
    path = draft / "tokenizer_config.json"
    tiny.write_json(path, {**json.loads(path.read_text()), "eos_token": "<|user|>"})
    tiny.write_json(draft / "generation_config.json", {"eos_token_id": [1]})
    assert compare(target, draft).reasons == (
        "eos_token is '<|user|>' in the draft and '<|end|>' in the target",
        "the draft stops at the ids [1], the target at [0]",
    )


def test_a_shorter_context_and_another_quantization_are_noted(target: Path, tmp_path: Path) -> None:
    draft = tiny.head(
        tmp_path / "head",
        max_position_embeddings=128,
        quantization_config={"quant_method": "awq"},
    )
    answer = compare(target, draft)
    assert answer.ok
    assert any("128 tokens, the target's 512" in note for note in answer.notes)
    assert answer.notes[-1] == "quantization differs: draft awq, target none"


def changed_table(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = change(tensors[name])
        save_file(tensors, folder / "model.safetensors")

    return damage


def without(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return damage


def with_embedding(rows: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors["embed_tokens.weight"] = np.ones((rows, tiny.HIDDEN), np.float32)
        save_file(tensors, folder / "model.safetensors")

    return damage


def first_two_alike(table: Any) -> Any:
    return np.concatenate([[1, 0], table[2:]])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (changed_table("d2t", lambda t: t + 1000), "d2t sends draft token 0 to 1000, beyond 32"),
        (changed_table("d2t", lambda t: t - 1), "d2t sends draft token 0 to -1"),
        (changed_table("d2t", first_two_alike), "d2t sends two draft tokens to one"),
        (changed_table("d2t", lambda t: t.astype(np.int32)), r"d2t is I32 \[6\], wanted I64 \[6\]"),
        (changed_table("d2t", lambda t: t[:-1].copy()), r"d2t is I64 \[5\], wanted I64 \[6\]"),
        (changed_table("t2d", lambda t: ~t), "t2d and d2t disagree about token 0"),
        (changed_table("t2d", lambda t: t[:-1].copy()), r"t2d is BOOL \[31\], wanted BOOL \[32\]"),
        (changed_table("lm_head.weight", lambda t: t[:4].copy()), "has 4 rows, wanted 6"),
        (without("d2t"), "d2t is missing"),
        (without("fc.weight"), "fc.weight is missing"),
        (with_embedding(31), r"embed_tokens.weight is \[31, 8\], wanted \[32, 8\]"),
        (changed_table("fc.weight", lambda t: t[:, 8:].copy()), r"fc.weight is \[8, 16\]"),
    ],
)
def test_a_heads_vocabulary_must_lead_into_the_targets(
    target: Path, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    folder = tiny.head(tmp_path / "head")
    damage(folder)
    answer = compare(target, folder)
    assert not answer.ok
    assert any(re.search(reason, said) for said in answer.reasons)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"vocab_size": 999}, "made for a target with vocab_size 999"),
        ({"hidden_size": 16}, "made for a target with hidden_size 16"),
        ({"target_hidden_size": 16}, "made for a target with hidden_size 16"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 9]}, "reads layer 9, the target has 6"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 4, 5]}, "reads 4 layers"),
        ({"vocab_size": None}, "has vocab_size None, wanted a whole number"),
    ],
)
def test_a_head_for_another_target_is_refused(
    target: Path, tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    answer = compare(target, tiny.head(tmp_path / "head", **config))
    assert not answer.ok
    assert reason in answer.reasons[0]


def test_a_pair_fits_only_its_own_release_and_the_difference_is_named(
    target: Path, tmp_path: Path
) -> None:
    files = pair_files(tmp_path / "pair", "head")
    manifest = manifest_of(target, files, "head")
    assert fits_release(manifest, fingerprint(target)).ok
    path = target / "generation_config.json"
    tiny.write_json(path, {**json.loads(path.read_text()), "temperature": 0.1})
    answer = fits_release(manifest, fingerprint(target))
    assert not answer.ok
    assert "the same weights; generation changed" in answer.reasons[0]


def test_a_target_requantised_under_the_same_name_is_another_release(
    target: Path, tmp_path: Path
) -> None:
    manifest = manifest_of(target, pair_files(tmp_path / "pair", "ngram"), "ngram")
    halved = {name: array.astype(np.float16) for name, array in tiny.arrays().items()}
    save_file(halved, target / "model.safetensors")
    answer = fits_release(manifest, fingerprint(target))
    assert not answer.ok
    assert "weights changed" in answer.reasons[0]


def test_a_pair_is_of_the_adapters_it_was_judged_with(target: Path, tmp_path: Path) -> None:
    law, tax = (fingerprint_adapter(tiny.adapter(tmp_path / str(n), seed=n)) for n in (1, 2))
    manifest = replace(
        manifest_of(target, pair_files(tmp_path / "pair", "ngram"), "ngram"), adapters={"law": law}
    )
    assert fits_adapters(manifest, {"law": law}).ok
    assert "was judged with the adapter law, not here" in fits_adapters(manifest, {}).reasons[0]
    other = fits_adapters(manifest, {"law": tax, "tax": tax})
    assert f"the adapter law is {tax[:12]}" in other.reasons[0]
    assert "was not judged with the adapter tax" in other.reasons[1]


def test_a_pair_binds_its_own_draft(target: Path, tmp_path: Path) -> None:
    files = pair_files(tmp_path / "pair", "head")
    manifest = manifest_of(target, files, "head")
    other = fingerprint_draft(tiny.head(tmp_path / "other", seed=1))
    assert fits_draft(manifest, manifest.draft).ok
    assert fits_draft(manifest, replace(manifest.draft, parameters=0)).ok
    assert "binds the head draft" in fits_draft(manifest, other).reasons[0]
