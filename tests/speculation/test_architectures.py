"""What is served decodes as transformers' `generate` does; what cannot is refused by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from speculation.architectures import SERVED, Architecture
from speculation.cache import ROOM
from speculation.decoder import layout_of
from speculation.drafters import Ask, Drafter, HeadDrafter, NoDrafter, Proposal
from speculation.engine import Engine
from speculation.head import Head, head_config
from speculation.sequence import Request
from speculation.target import ModelFolderError, Target, load_target
from tests.toys import (
    ARCHITECTURES,
    decode,
    generated,
    toy_architecture_folder,
    toy_target_folder,
)

TOKENS, MAX_LEN, SLOTS = 30, 80, 4  # every window is 8 or 16


@cache
def prompts() -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [
        tuple(torch.randint(3, 119, (length,), generator=generator).tolist())
        for length in (3, 21, 9, 12)
    ]


class Wobbly(NoDrafter):
    """Drafts the target's own output with every fifth token wrong, so that both ends are met."""

    def __init__(self, outputs: dict[str, list[int]]) -> None:
        self.outputs = {prompt: outputs[str(i)] for i, prompt in enumerate(prompts())}

    def propose(self, asks: Sequence[Ask]) -> Proposal:
        found = []
        for ask in asks:
            prompt = next(p for p in self.outputs if tuple(ask.context[: len(p)]) == p)
            done = len(ask.context) - len(prompt)
            coming = self.outputs[prompt][done : done + ask.length]
            found.append(
                [(t + 1) % 120 if (done + i) % 5 == 4 else t for i, t in enumerate(coming)]
            )
        return Proposal(found, None)


def decoded(target: Target, drafter: Drafter, lens: Sequence[int]) -> dict[str, list[int]]:
    """Each prompt's tokens, side by side, at a K of its own."""
    engine = Engine(target, {"x": drafter}, default="x", slots=SLOTS, max_len=MAX_LEN)
    requests = [
        Request(str(number), prompt, TOKENS, draft_len=length)
        for number, (prompt, length) in enumerate(zip(prompts(), lens, strict=True))
    ]
    return decode(engine, requests)[0]


@pytest.fixture(scope="module", params=sorted(ARCHITECTURES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, options = ARCHITECTURES[request.param]
    return toy_architecture_folder(tmp_path_factory.mktemp("toy") / kind, kind, **options)


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    return load_target(folder, dtype="float32")


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict[str, list[int]]:
    outputs = generated(folder, prompts(), TOKENS)
    # Not one token for ever, which a wrong mask would give too.
    assert len({token for tokens in outputs.values() for token in tokens}) >= 10
    return outputs


def test_greedy_output_is_generates_own_at_every_k_beyond_the_window(
    target: Target, plain: dict[str, list[int]]
) -> None:
    for lens in ((0, 1, 4, 16), (16, 4, 0, 1)):
        assert decoded(target, Wobbly(plain), lens) == plain


def test_a_head_reads_any_architectures_states(target: Target, plain: dict[str, list[int]]) -> None:
    torch.manual_seed(0)
    head = Head(head_config(target, draft_vocab=60)).eval().requires_grad_(False)
    head.choose_tokens(torch.arange(0, 120, 2))
    drafter = HeadDrafter(head, target.embedding, rows=SLOTS, max_len=MAX_LEN)
    assert decoded(target, drafter, (4, 1, 2, 4)) == plain


def test_logits_are_the_models_own_with_its_scales_and_caps(folder: Path, target: Target) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([prompts()[1]])
    positions = torch.arange(ids.shape[1])[None]
    with torch.inference_mode():
        hidden, _ = target.forward(ids, positions, target.new_cache(rows=1, max_len=32), [0])
        torch.testing.assert_close(
            target.logits(hidden), model(ids).logits, atol=2e-4, rtol=1e-4
        )  # float32, other orders of sums
        assert target.logits(hidden[:, -1]).shape == (1, target.vocab_size)


def test_a_window_left_out_would_be_seen(
    target: Target, plain: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = target.architecture.windows
    whole = replace(target.architecture, windows=dict.fromkeys(windows))
    monkeypatch.setattr(target, "architecture", whole)
    if any(windows.values()):
        assert decoded(target, NoDrafter(), (0, 0, 0, 0)) != plain


SMALL = {
    "sliding_window": 8,
    **{"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "n_group": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SERVED - {kind for kind, _ in ARCHITECTURES.values()}))
def test_the_other_served_architectures_decode_as_generate_does(kind: str, tmp_path: Path) -> None:
    known = type(AutoConfig.for_model(kind))
    options = {name: value for name, value in SMALL.items() if hasattr(known, name)}
    folder = toy_architecture_folder(tmp_path / "toy", kind, **options)
    plain = generated(folder, prompts(), TOKENS)
    assert len({token for tokens in plain.values() for token in tokens}) >= 10
    target = load_target(folder, dtype="float32")
    for lens in ((0, 0, 0, 0), (0, 1, 4, 16), (16, 4, 0, 1)):
        assert decoded(target, Wobbly(plain), lens) == plain


def configured(folder: Path, kind: str, **options: Any) -> Path:
    """A folder with a config.json and nothing else: what is refused by it reads no weights."""
    AutoConfig.for_model(kind, **options).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "kind",
    ["mamba", "mamba2", "falcon_mamba", "recurrent_gemma", "jamba", "bamba", "qwen3_next", "rwkv"],
)
def test_a_recurrent_or_hybrid_state_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=rf"'{kind}' model, which keeps a recurrent state"):
        load_target(configured(tmp_path, kind))


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("t5", {}, "encoder-decoder"),
        ("bart", {}, "encoder-decoder"),
        ("llama4_text", {}, "attends in chunks"),
        ("lfm2", {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}, "kind conv"),
        ("llama", {"sliding_window": 8}, "has no sliding windows, but sliding_window 8"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "attends to later positions"),
        ("gpt2", {}, "has not been shown to decode here as it does in transformers"),
        ("bert", {}, "has not been shown"),
    ],
)
def test_what_cannot_be_decoded_rightly_is_refused_with_the_reason(
    kind: str, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFolderError, match=rf"'{kind}' model.*{why}"):
        load_target(configured(tmp_path, kind, **options))


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nothing_known"}))
    with pytest.raises(ModelFolderError, match="nothing_known"):
        load_target(tmp_path)


def test_sliding_layers_without_a_window_are_refused(tmp_path: Path) -> None:
    folder = configured(tmp_path, "gemma2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sliding_window": None}))
    with pytest.raises(ModelFolderError, match="sliding_window None"):
        load_target(folder)


def test_the_frequencies_of_long_positions_are_served_up_to_where_they_change(
    tmp_path: Path,
) -> None:
    longest = MAX_LEN + ROOM
    rope = {
        **{"rope_type": "longrope", "rope_theta": 10_000.0},
        **{"short_factor": [1.0, 1.2, 1.4, 1.6], "long_factor": [2.0, 3.0, 4.0, 5.0]},
        "original_max_position_embeddings": longest,
    }
    folder = toy_architecture_folder(
        tmp_path / "toy", "phi3", rope_parameters=rope, original_max_position_embeddings=longest
    )
    target, plain = load_target(folder, dtype="float32"), generated(folder, prompts(), TOKENS)
    assert decoded(target, Wobbly(plain), (16, 16, 16, 16)) == plain
    with pytest.raises(ModelFolderError, match=rf"phi3 .* at most {MAX_LEN}"):
        target.new_cache(rows=1, max_len=MAX_LEN + 1)


def test_layers_that_do_not_store_all_one_shape_are_refused(tmp_path: Path) -> None:
    model = load_target(toy_target_folder(tmp_path / "toy")).model
    layers: Any = model.get_decoder().layers  # type: ignore[operator]
    layers[1].self_attn.layer_idx = 0  # as layers that share their keys do
    with pytest.raises(ModelFolderError, match="3 of its 4 layers"):
        layout_of(model, Architecture("shared", {"full_attention": None}))
