"""Heads in the layout of the speculators project, there and back.

What their library (0.9.0) makes of an exported head was compared by hand with the head here: the
logits of both differ by at most 4e-7, every time. Here its layout is held to what it then wrote.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.compatibility import compare
from registry.errors import FolderError
from registry.fingerprint import fingerprint_draft
from registry.speculators import to_speculators
from registry.speculators_read import from_speculators
from speculation.head import Head, head_config, load_head, save_head
from speculation.target import load_target
from tests.toys import toy_draft_folder, toy_target_folder

LAYER = "layers.0."
WHOLE = {"embed_tokens.weight", "fc.weight", "lm_head.weight", "norm.weight", "d2t", "t2d"} | {
    f"{LAYER}{name}.weight"
    for name in (
        *("hidden_norm", "input_layernorm", "post_attention_layernorm"),
        *("mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"),
        *("self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj", "self_attn.v_proj"),
    )
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a head for it, and the head in the other layout."""
    place = tmp_path_factory.mktemp("made")
    target = toy_target_folder(place / "target", layers=8)
    head = toy_draft_folder(target, place / "head")
    to_speculators(head, place / "theirs", target="org/target", draft_len=3, weights=target)
    return place


@pytest.fixture
def theirs(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "theirs", tmp_path / "theirs")


def edit(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def edit_layer(folder: Path, **values: Any) -> None:
    layer = json.loads((folder / "config.json").read_text())["transformer_layer_config"]
    edit(folder, transformer_layer_config={**layer, **values})


def edit_tensors(folder: Path, **values: torch.Tensor | None) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **values}
    save_file({n: t for n, t in tensors.items() if t is not None}, folder / "model.safetensors")


def embedding(made: Path) -> torch.Tensor:
    return load_file(made / "target" / "model.safetensors")["model.embed_tokens.weight"]


def test_a_head_there_and_back_is_the_same_draft(made: Path, tmp_path: Path) -> None:
    from_speculators(made / "theirs", tmp_path / "back", target=made / "target")
    assert fingerprint_draft(tmp_path / "back") == fingerprint_draft(made / "head")
    assert compare(made / "target", tmp_path / "back").ok


def test_an_exported_head_has_the_layout_that_their_library_reads(made: Path) -> None:
    config = json.loads((made / "theirs" / "config.json").read_text())
    head = json.loads((made / "head" / "config.json").read_text())
    assert config["speculators_model_type"] == "eagle3"
    assert config["speculators_config"] == {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {
            "name_or_path": "org/target",
            "architectures": ["LlamaForCausalLM"],
        },
    }
    assert config["draft_vocab_size"] == 64
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    layer = config["transformer_layer_config"]
    for name in ("hidden_size", "vocab_size", "head_dim", "rope_parameters", "rms_norm_eps"):
        assert layer[name] == head[name]
    assert (layer["model_type"], layer["num_hidden_layers"]) == ("llama", 1)
    tensors = load_file(made / "theirs" / "model.safetensors")
    assert tensors.keys() == WHOLE
    ours = load_file(made / "head" / "model.safetensors")
    assert torch.equal(tensors.pop("embed_tokens.weight"), embedding(made))
    for name, tensor in tensors.items():
        assert torch.equal(tensor, ours[name.replace(LAYER, "midlayer.")])


def test_what_the_layout_has_no_place_for_is_said(made: Path, tmp_path: Path) -> None:
    carried = to_speculators(made / "head", tmp_path / "out", target="org/target", draft_len=4)
    assert any("embedding is not here" in what for what in carried.left)
    assert "embed_tokens.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    assert any("cannot say which release" in what for what in carried.left)
    assert any("no place for the verdict" in what for what in carried.left)
    head = shutil.copytree(made / "head", tmp_path / "twice")
    edit(head, eagle_aux_hidden_state_layer_ids=[2, 2, 1])
    carried = to_speculators(head, tmp_path / "two", target="org/target", draft_len=4)
    assert any("reads a layer twice ([2, 2, 1])" in what for what in carried.left)


def as_their_library_saves(folder: Path, made: Path) -> None:
    edit(folder, auto_map={"": "config.Eagle3SpeculatorConfig"})
    (folder / "config.py").write_text("raise SystemExit('code of the folder was run')")
    edit_tensors(
        folder,
        **{
            "verifier_norm.weight": torch.ones(32),
            "verifier_lm_head.weight": torch.ones(64, 32),
        },
    )


def test_a_head_as_their_library_saves_it_is_read(made: Path, theirs: Path, tmp_path: Path) -> None:
    as_their_library_saves(theirs, made)
    carried = from_speculators(theirs, tmp_path / "head", target=made / "target")
    assert fingerprint_draft(tmp_path / "head") == fingerprint_draft(made / "head")
    assert [path.name for path in sorted((tmp_path / "head").iterdir())] == [
        "config.json",
        "model.safetensors",
    ]
    said = "\n".join(carried.left)
    for what in ("auto_map names code", "embed_tokens.weight is the target's own", "3 tokens"):
        assert what in said
    for name in ("verifier_norm.weight", "verifier_lm_head.weight"):
        assert f"{name} is the target's own and was left out" in said
    whole = load_head(tmp_path / "head", dtype=torch.float32, device=torch.device("cpu"))
    assert whole.token_ids.tolist() == sorted(whole.token_ids.tolist())


def test_an_older_configuration_means_the_same(made: Path, theirs: Path, tmp_path: Path) -> None:
    """Rotary settings as transformers 4 wrote them, and layers left to the default."""
    layer = json.loads((theirs / "config.json").read_text())["transformer_layer_config"]
    theta = layer.pop("rope_parameters")["rope_theta"]
    edit(theirs, transformer_layer_config={**layer, "rope_theta": theta, "rope_scaling": None})
    edit(theirs, eagle_aux_hidden_state_layer_ids=None)
    from_speculators(theirs, tmp_path / "head", target=made / "target")
    assert fingerprint_draft(tmp_path / "head") == fingerprint_draft(made / "head")


def test_a_scaled_rotary_setting_is_carried(made: Path, theirs: Path, tmp_path: Path) -> None:
    layer = json.loads((theirs / "config.json").read_text())["transformer_layer_config"]
    del layer["rope_parameters"]
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    layer |= {"rope_theta": 500_000.0, "rope_scaling": scaling}
    edit(theirs, transformer_layer_config=layer)
    from_speculators(theirs, tmp_path / "head", target=made / "target")
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["rope_parameters"] == {"rope_theta": 500_000.0, **scaling}
    assert "rope_scaling" not in config


def test_an_embedding_kept_wider_than_the_targets_is_still_the_targets(
    made: Path, theirs: Path, tmp_path: Path
) -> None:
    target = shutil.copytree(made / "target", tmp_path / "target")
    halved = {n: t.bfloat16() for n, t in load_file(target / "model.safetensors").items()}
    save_file(halved, target / "model.safetensors")
    wide = halved["model.embed_tokens.weight"].float()
    edit_tensors(theirs, **{"embed_tokens.weight": wide})
    from_speculators(theirs, tmp_path / "one", target=target)
    for factor in (1 + 2**-20, 2.0):  # below what the narrow type holds, and above
        edit_tensors(theirs, **{"embed_tokens.weight": wide * factor})
        with pytest.raises(FolderError, match="is not the embedding of"):
            from_speculators(theirs, tmp_path / "other", target=target)


def test_a_whole_vocabulary_needs_no_tables_there_and_has_them_here(
    made: Path, tmp_path: Path
) -> None:
    target = load_target(made / "target", dtype="float32")
    torch.manual_seed(1)
    head = Head(head_config(target, draft_vocab=10**6))
    head.choose_tokens(torch.arange(target.vocab_size))
    save_head(head, tmp_path / "head")
    to_speculators(tmp_path / "head", tmp_path / "theirs", target="org/target", draft_len=4)
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    assert tensors.keys() == WHOLE - {"d2t", "t2d", "embed_tokens.weight"}
    from_speculators(tmp_path / "theirs", tmp_path / "back", target=made / "target")
    assert fingerprint_draft(tmp_path / "back") == fingerprint_draft(tmp_path / "head")


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: edit_tensors(folder, **{name: None})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: edit(f, norm_before_residual=True), "norm_before_residual is on"),
        (lambda f: edit(f, norm_output=True, fc_norm=True), "fc_norm is on; norm_output is on"),
        (lambda f: edit_layer(f, model_type="qwen3"), "model_type 'qwen3', wanted 'llama'"),
        (lambda f: edit_layer(f, num_hidden_layers=2), "num_hidden_layers 2, wanted 1"),
        (lambda f: edit_layer(f, attention_bias=True), "attention_bias True, wanted False"),
        (lambda f: edit_layer(f, sliding_window=512), "sliding_window 512, wanted None"),
        (lambda f: edit_layer(f, vocab_size="x"), "vocab_size: got 'x'"),
        (lambda f: edit_layer(f, auto_map={"a": "b"}), "auto_map inside"),
        (lambda f: edit(f, speculators_model_type="dflash"), "holds the kind 'dflash'"),
        (lambda f: edit(f, transformer_layer_config=None), "wanted 'eagle3'"),
        (lambda f: edit_tensors(f, **{"fc.bias": torch.ones(32)}), "holds fc.bias"),
        (lambda f: edit_tensors(f, **{"embed_tokens.weight": torch.ones(300, 32)}), "is not the e"),
        (without("norm.weight"), "has no norm.weight"),
        (without("d2t"), "has no d2t"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    made: Path, theirs: Path, tmp_path: Path, change: Callable[[Path], None], reason: str
) -> None:
    change(theirs)
    with pytest.raises(FolderError, match=reason):
        from_speculators(theirs, tmp_path / "head", target=made / "target")
    assert not (tmp_path / "head").exists()


def test_a_folder_in_that_layout_is_no_draft_until_it_is_imported(made: Path) -> None:
    for attempt in (
        lambda: fingerprint_draft(made / "theirs"),
        lambda: compare(made / "target", made / "theirs"),
    ):
        with pytest.raises(FolderError, match="paceline import"):
            attempt()


def test_an_embedding_of_another_size_is_no_targets(made: Path, tmp_path: Path) -> None:
    wide = toy_target_folder(tmp_path / "wide", hidden=64)
    with pytest.raises(FolderError, match=r"has the embedding \[300, 64\]"):
        to_speculators(
            made / "head", tmp_path / "out", target="org/target", draft_len=4, weights=wide
        )


def test_only_a_head_has_a_place_in_that_layout(made: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is a LlamaForCausalLM; only heads"):
        to_speculators(made / "target", tmp_path / "out", target="org/target", draft_len=4)
