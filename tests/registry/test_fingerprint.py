from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from registry.adapters import fingerprint_adapter, record_merge
from registry.configs import ties_embeddings
from registry.errors import FolderError
from registry.fingerprint import difference, fingerprint, fingerprint_draft
from registry.tensors import Tensor
from speculation.architectures import SERVED
from tests.registry import tiny

FEW = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.target(tmp_path / "target")


@FEW
@given(parts=st.integers(1, 5), order=st.randoms(use_true_random=False))
def test_resharding_renaming_and_order_do_not_change_the_digest(
    tmp_path_factory: pytest.TempPathFactory, parts: int, order: object
) -> None:
    place = tmp_path_factory.mktemp("shards")
    names = list(tiny.arrays())
    order.shuffle(names)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    shuffled = {name: tiny.arrays()[name] for name in names}
    whole = tiny.target(place / "whole")
    resharded = tiny.target(place / "another-name")
    tiny.shard(resharded, shuffled, parts)
    assert fingerprint(whole) == fingerprint(resharded)


@FEW
@given(
    name=st.sampled_from(sorted(tiny.arrays())),
    where=st.integers(0, 7),
    bit=st.integers(0, 7),
)
def test_one_changed_bit_of_one_value_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, name: str, where: int, bit: int
) -> None:
    place = tmp_path_factory.mktemp("bit")
    weights = tiny.arrays()
    weights[name] = weights[name].copy()
    weights[name].view(np.uint8).reshape(-1)[where] ^= 1 << bit
    before = fingerprint(tiny.target(place / "before"))
    after = fingerprint(tiny.target(place / "after", weights=weights))
    assert before.weights != after.weights
    assert before.digest != after.digest
    assert difference(before, after) == "weights changed"


def test_another_dtype_shape_or_name_of_the_same_bytes_changes_the_digest(tmp_path: Path) -> None:
    def with_norm(name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        weights = {n: a for n, a in tiny.arrays().items() if n != "model.norm.weight"}
        place = tmp_path / f"{name}-{array.dtype}-{array.ndim}"
        return fingerprint(tiny.target(place, weights={**weights, name: array})).weights

    norm = tiny.arrays()["model.norm.weight"]
    digests = {
        with_norm("model.norm.weight", norm),
        with_norm("model.norm.weight", norm.view(np.int16)),
        with_norm("model.norm.weight", norm.reshape(2, 4)),
        with_norm("model.other.weight", norm),
    }
    assert len(digests) == 4


@FEW
@given(name=st.sampled_from(sorted(tiny.arrays())), dtype=st.sampled_from(["f2", "f8", "i4", "u1"]))
def test_the_same_numbers_in_another_dtype_are_other_weights(
    tmp_path_factory: pytest.TempPathFactory, name: str, dtype: str
) -> None:
    place = tmp_path_factory.mktemp("dtype")
    whole = {
        one: np.abs(np.round(array)).astype(array.dtype) for one, array in tiny.arrays().items()
    }
    assume(whole[name].dtype != np.dtype(dtype))
    before = fingerprint(tiny.target(place / "before", weights=whole))
    cast = {**whole, name: whole[name].astype(dtype)}
    after = fingerprint(tiny.target(place / "after", weights=cast))
    assert (cast[name] == whole[name]).all()
    assert before.digest != after.digest
    assert difference(before, after) == "weights changed"


@FEW
@given(
    one=st.integers(0, len(tiny.WORDS) - 1),
    other=st.integers(0, len(tiny.WORDS) - 1),
)
def test_any_two_exchanged_tokens_are_another_tokenizer_and_none_the_same(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int
) -> None:
    folder = tiny.target(tmp_path_factory.mktemp("tokens") / "target")
    before = fingerprint(folder)
    words = list(tiny.WORDS)
    words[one], words[other] = words[other], words[one]
    tiny.write_tokenizer(folder, words)
    after = fingerprint(folder)
    assert (after == before) == (one == other)
    assert (after.tokenizer == before.tokenizer) == (one == other)
    assert after.weights == before.weights


@FEW
@given(template=st.text(max_size=60), other=st.text(max_size=60), alone=st.booleans())
def test_a_template_is_its_text_wherever_it_is_kept(
    tmp_path_factory: pytest.TempPathFactory, template: str, other: str, alone: bool
) -> None:
    assume("\r" not in template + other)  # a text file's line ends are one character when read
    folder = tiny.target(tmp_path_factory.mktemp("template") / "target")

    def kept(text: str, in_a_file: bool) -> str:
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        config: dict[str, object] = {"eos_token": "<|end|>"}
        if in_a_file:
            (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
        else:
            config["chat_template"] = text
        tiny.write_json(folder / "tokenizer_config.json", config)
        return fingerprint(folder).digest

    first = kept(template, alone)
    assert kept(template, not alone) == first
    assert (kept(other, alone) == first) == (other == template)


@FEW
@given(parts=st.integers(1, 4), name=st.sampled_from(["lm_head.weight", "embed_out.weight"]))
def test_a_tied_output_layer_is_the_same_weights_written_or_not(
    tmp_path_factory: pytest.TempPathFactory, parts: int, name: str
) -> None:
    place = tmp_path_factory.mktemp("tied")
    without = tiny.target(place / "without")
    twice = tiny.target(place / "twice")
    tiny.shard(twice, {name: tiny.arrays()["model.embed_tokens.weight"], **tiny.arrays()}, parts)
    assert fingerprint(twice) == fingerprint(without)
    untied = tiny.target(place / "untied", tie_word_embeddings=False)
    tiny.shard(untied, {name: tiny.arrays()["model.embed_tokens.weight"], **tiny.arrays()}, parts)
    assert fingerprint(untied).weights != fingerprint(without).weights


def test_which_models_tie_embeddings_unsaid_is_what_transformers_does(tmp_path: Path) -> None:
    from transformers import AutoConfig

    for model_type in sorted(SERVED):
        default = AutoConfig.for_model(model_type).get_text_config(decoder=True).tie_word_embeddings
        assert ties_embeddings({"model_type": model_type}) == bool(default), model_type


def changed_json(name: str, **values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        tiny.write_json(path, {**json.loads(path.read_text()), **values})

    return change


def swap_two_tokens(folder: Path) -> None:
    words = list(tiny.WORDS)
    words[4], words[7] = words[7], words[4]
    template = json.loads((folder / "tokenizer_config.json").read_text())
    tiny.write_tokenizer(folder, words)
    tiny.write_json(folder / "tokenizer_config.json", template)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (swap_two_tokens, "tokenizer"),
        (changed_json("tokenizer_config.json", chat_template="{{ other }}"), "chat template"),
        (changed_json("tokenizer_config.json", eos_token="<|user|>"), "tokenizer"),
        (changed_json("generation_config.json", temperature=0.8), "generation"),
        (changed_json("generation_config.json", eos_token_id=[0, 1]), "generation"),
        (changed_json("config.json", rope_theta=5000.0), "configuration"),
    ],
)
def test_a_changed_part_changes_the_digest_and_is_named(
    folder: Path, change: Callable[[Path], None], part: str
) -> None:
    before = fingerprint(folder)
    change(folder)
    after = fingerprint(folder)
    assert before.digest != after.digest
    assert difference(before, after) == f"the same weights; {part} changed"


def template_in_its_own_file(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    written = json.loads(path.read_text())
    (folder / "chat_template.jinja").write_text(written.pop("chat_template"))
    tiny.write_json(path, written)


def merges_as_strings(folder: Path) -> None:
    path = folder / "tokenizer.json"
    written = json.loads(path.read_text())
    merges = written["model"]["merges"]
    written["model"]["merges"] = [" ".join(pair) for pair in merges]
    assert written["model"]["merges"] != merges
    tiny.write_json(path, written)


def added_tokens_in_the_other_file(folder: Path) -> None:
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    written = json.loads(path.read_text())
    moved = written.pop("added_tokens")
    decoder = {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in moved}
    tiny.write_json(path, {**written, "added_tokens": []})
    tiny.write_json(config, {**json.loads(config.read_text()), "added_tokens_decoder": decoder})


def last_batch_was_padded(folder: Path) -> None:
    changed_json("tokenizer.json", truncation=None, padding=None)(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(8)
    tokenizer.save(str(folder / "tokenizer.json"))


def special_token_as_a_record(folder: Path) -> None:
    changed_json("tokenizer_config.json", eos_token={"content": "<|end|>", "lstrip": False})(folder)


def saved_by_another_version(folder: Path) -> None:
    changed_json("config.json", transformers_version="4.40.0", torch_dtype="float32")(folder)


def output_layer_written_twice(folder: Path) -> None:
    weights = tiny.arrays()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    "respell",
    [
        template_in_its_own_file,
        merges_as_strings,
        added_tokens_in_the_other_file,
        last_batch_was_padded,
        special_token_as_a_record,
        saved_by_another_version,
        output_layer_written_twice,
    ],
)
def test_another_spelling_of_the_same_model_is_the_same_release(
    folder: Path, respell: Callable[[Path], None]
) -> None:
    before = fingerprint(folder)
    respell(folder)
    assert fingerprint(folder) == before


def test_an_output_layer_unequal_to_tied_embeddings_is_an_error(folder: Path) -> None:
    weights = tiny.arrays()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(FolderError, match="ties the embeddings, but lm_head.weight differs"):
        fingerprint(folder)


def test_what_the_release_is_can_be_read_off_the_folder(folder: Path) -> None:
    release = fingerprint(folder)
    assert release.architecture == "LlamaForCausalLM"
    assert release.dtype == "float32"
    assert release.context_configured == 512
    assert release.parameters == sum(a.size for a in tiny.arrays().values())
    assert release.adapter is None
    assert release.quantization is None


def test_progress_reaches_the_folders_bytes(folder: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    fingerprint(folder, progress=lambda *step: seen.append(step))
    total = sum(a.nbytes for a in tiny.arrays().values())
    assert seen[-1] == (total, total, "target")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_progress_goes_on_within_one_tensor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor may take minutes: its reading waits here until a part of it was told."""
    told = threading.Event()
    seen: list[int] = []

    def chunks(tensor: Tensor) -> Iterator[bytes]:
        yield bytes(tensor.size_bytes // 2)
        assert told.wait(60)
        yield bytes(tensor.size_bytes - tensor.size_bytes // 2)

    def progress(done: int, total: int, what: str) -> None:
        seen.append(done)
        if 0 < done < total:
            told.set()

    save_file(
        {"model.embed_tokens.weight": tiny.arrays()["model.embed_tokens.weight"]},
        folder / "model.safetensors",
    )
    monkeypatch.setattr(Tensor, "chunks", chunks)
    fingerprint(folder, progress=progress)
    assert len({done for done in seen if done}) == 2


def test_a_fault_ends_all_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def chunks(tensor: Tensor) -> Iterator[bytes]:
        read.append(tensor.name)
        raise FolderError(f"{tensor.name}: gone")

    monkeypatch.setattr(Tensor, "chunks", chunks)
    with pytest.raises(FolderError, match="gone"):
        fingerprint(folder)
    assert len(read) < len(tiny.arrays())


def test_an_adapter_makes_another_release_of_the_same_base(folder: Path, tmp_path: Path) -> None:
    base = fingerprint(folder)
    first = fingerprint(folder, adapter=tiny.adapter(tmp_path / "one"))
    other = fingerprint(folder, adapter=tiny.adapter(tmp_path / "two", seed=1))
    assert len({base.digest, first.digest, other.digest}) == 3
    assert base.weights == first.weights
    assert difference(base, first) == "the same weights; adapter changed"


def test_where_an_adapter_was_made_does_not_change_its_digest(tmp_path: Path) -> None:
    here = tiny.adapter(tmp_path / "here", base_model_name_or_path="/here", inference_mode=True)
    there = tiny.adapter(
        tmp_path / "there", base_model_name_or_path="/there", target_modules=["v_proj", "q_proj"]
    )
    scaled = tiny.adapter(tmp_path / "scaled", lora_alpha=64)
    assert fingerprint_adapter(here) == fingerprint_adapter(there)
    assert fingerprint_adapter(here) != fingerprint_adapter(scaled)


def test_a_merged_folder_is_the_release_that_base_and_adapter_are(
    folder: Path, tmp_path: Path
) -> None:
    lora = tiny.adapter(tmp_path / "lora")
    merged = [tiny.target(tmp_path / f"merged-{seed}", seed=seed) for seed in (1, 2)]
    for one in merged:  # the merged bytes differ, as they do between machines
        record_merge(one, base=folder, adapter=lora)
    wanted = fingerprint(folder, adapter=lora)
    assert [fingerprint(one) for one in merged] == [wanted, wanted]


def test_a_merge_record_does_not_vouch_for_other_weights(folder: Path, tmp_path: Path) -> None:
    merged = tiny.target(tmp_path / "merged", seed=1)
    record_merge(merged, base=folder, adapter=tiny.adapter(tmp_path / "lora"))
    save_file(tiny.arrays(3), merged / "model.safetensors")
    with pytest.raises(FolderError, match="Merge the adapter again"):
        fingerprint(merged)


def test_drafts_are_told_apart_by_kind_and_content(tmp_path: Path) -> None:
    one, again = tiny.head(tmp_path / "one"), tiny.head(tmp_path / "again")
    other = tiny.head(tmp_path / "other", seed=1)
    small = fingerprint_draft(tiny.target(tmp_path / "small"))
    assert fingerprint_draft(one) == fingerprint_draft(again)
    assert fingerprint_draft(one).kind == "head"
    assert small.kind == "model"
    kinds = [fingerprint_draft(draft) for draft in (one, other, "ngram", "none")]
    assert len({draft.digest for draft in [*kinds, small]}) == 5
    assert [draft.kind for draft in kinds] == ["head", "head", "ngram", "none"]


def test_a_small_drafts_tied_output_layer_is_the_same_written_or_not(tmp_path: Path) -> None:
    small = tiny.target(tmp_path / "small")
    before = fingerprint_draft(small)
    output_layer_written_twice(small)
    assert fingerprint_draft(small) == before


def test_a_folder_copied_elsewhere_is_the_same_release(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "v2")
    assert fingerprint(copy) == replace(fingerprint(folder))


def test_a_tokenizer_at_which_the_library_panics_is_a_folder_error(tmp_path: Path) -> None:
    folder = tiny.target(tmp_path / "target")
    path = folder / "tokenizer.json"
    panics = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": panics}))
    with pytest.raises(FolderError, match="is no tokenizer that `tokenizers` can load"):
        fingerprint(folder)
