"""Rows of several LoRA adapters share a batch, and each decodes as peft does with its own alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from speculation.drafters import load_drafter
from speculation.engine import Engine
from speculation.lora_folder import CONFIG, WEIGHTS
from speculation.sequence import Request
from speculation.target import ModelFolderError, Target, load_target
from tests.toys import ARCHITECTURES, decode, toy_adapter_folder, toy_architecture_folder

TOKENS, MAX_LEN = 24, 96
ADAPTERS: dict[str, dict[str, Any]] = {
    "names": {"r": 4, "target_modules": ["q_proj", "down_proj"]},
    "patterns": {
        "r": 8,
        "lora_alpha": 4,
        "use_rslora": True,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj"],
        "layers_to_transform": [0, 2],
        "rank_pattern": {"v_proj": 2, "layers.2.mlp.up_proj": 3},
        "alpha_pattern": {"self_attn.q_proj": 12},
    },
    "pattern": {
        "r": 3,
        "target_modules": r".*layers\.[12]\.(self_attn\.[kv]_proj|mlp\.gate_proj)",
        "exclude_modules": r".*layers\.2\.self_attn\.k_proj",
    },
}
CHOICES = ("names", None, "patterns", "pattern", "names")  # of the rows of a batch


def toy_adapter(base: Path, out: Path, options: dict[str, Any]) -> Path:
    return toy_adapter_folder(base, out, seed=len(str(options)), **options)


@dataclass(frozen=True)
class Adapted:
    base: Path
    folders: dict[str, Path]
    target: Target


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    home = tmp_path_factory.mktemp("lora")
    base = toy_architecture_folder(home / "base", "llama", tied=True)
    folders = {name: toy_adapter(base, home / name, asked) for name, asked in ADAPTERS.items()}
    target = load_target(base, dtype="float32")
    for name, folder in folders.items():
        target.load_adapter(name, folder)
    return Adapted(base, folders, target)


def peft_model(base: Path, adapter: Path | None) -> Any:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return model if adapter is None else PeftModel.from_pretrained(model, str(adapter)).eval()


def some_prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randint(3, 119, (length,), generator=generator).tolist()
        for length in (4, 9, 15, 2, 9)
    ]


@pytest.fixture(scope="module")
def wanted(adapted: Adapted) -> list[list[int]]:
    """What peft generates for each row, alone with its adapter."""
    found = []
    for prompt, name in zip(some_prompts(), CHOICES, strict=True):
        model = peft_model(adapted.base, adapted.folders[name] if name else None)
        out = model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=None,
        )
        found.append(out[0, len(prompt) :].tolist())
    return found


@torch.inference_mode()
def speculated(
    target: Target, drafts: Sequence[list[int]], draft_len: int, choices: Sequence[str | None]
) -> list[list[int]]:
    """Greedy speculation over all rows in one batch; every fourth drafted token is wrong."""
    cache = target.new_cache(rows=len(choices), max_len=MAX_LEN)
    tokens, starts = some_prompts(), []
    for row, prompt in enumerate(tokens):
        positions = torch.arange(len(prompt))[None]
        hidden, _ = target.forward(torch.tensor([prompt]), positions, cache, [row], [choices[row]])
        starts.append(len(prompt))
        prompt.append(int(target.logits(hidden[:, -1]).argmax()))
    while min(len(t) - s for t, s in zip(tokens, starts, strict=True)) < TOKENS:
        feeds = []
        for row, start in enumerate(starts):
            done = len(tokens[row]) - start
            coming = (drafts[row] + [5] * MAX_LEN)[done : done + draft_len]
            wrong = [(t + 1) % 120 if (done + i) % 4 == 3 else t for i, t in enumerate(coming)]
            feeds.append([tokens[row][-1], *wrong])
        first = torch.tensor([len(t) - 1 for t in tokens])
        positions = first[:, None] + torch.arange(draft_len + 1)
        hidden, _ = target.forward(
            torch.tensor(feeds), positions, cache, list(range(len(tokens))), choices
        )
        best = target.logits(hidden).argmax(dim=-1).tolist()
        for row, (feed, chosen) in enumerate(zip(feeds, best, strict=True)):
            count = 0
            while count < draft_len and feed[count + 1] == chosen[count]:
                count += 1
            if len(tokens[row]) < MAX_LEN - draft_len - 1:  # a row that is ahead waits
                tokens[row] += chosen[: count + 1]
    return [t[s : s + TOKENS] for t, s in zip(tokens, starts, strict=True)]


@pytest.mark.parametrize("draft_len", [0, 4, 16])
def test_each_row_of_a_mixed_batch_decodes_as_peft_with_its_adapter(
    adapted: Adapted, wanted: list[list[int]], draft_len: int
) -> None:
    assert len({tuple(tokens[:6]) for tokens in wanted}) == len(wanted)
    assert speculated(adapted.target, wanted, draft_len, CHOICES) == wanted


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_a_batch_of_one_adapter_gives_pefts_logits(adapted: Adapted, name: str) -> None:
    ids = torch.tensor(some_prompts()[1:2] * 2)
    positions = torch.arange(ids.shape[1]).expand(2, -1)
    target = adapted.target
    with torch.inference_mode():
        theirs = peft_model(adapted.base, adapted.folders[name])(ids).logits
        plain = peft_model(adapted.base, None)(ids).logits
        hidden, _ = target.forward(
            ids, positions, target.new_cache(rows=2, max_len=32), [0, 1], [name, name]
        )
        torch.testing.assert_close(
            target.logits(hidden), theirs, atol=2e-4, rtol=1e-4
        )  # float32, the scaling multiplied in before
    assert (theirs - plain).abs().max() > 0.1


def test_rows_without_an_adapter_cost_and_change_nothing(
    adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.tensor(some_prompts()[1:2])
    positions = torch.arange(ids.shape[1])[None]
    bare = load_target(adapted.base, dtype="float32")

    def hidden_of(target: Target, adapters: list[str | None] | None) -> Tensor:
        cache = target.new_cache(rows=1, max_len=32)
        return target.forward(ids, positions, cache, [0], adapters)[0]

    with torch.inference_mode():
        once = hidden_of(bare, None)
        hidden_of(adapted.target, ["names"])
        monkeypatch.setattr("speculation.lora.adapted", None)  # would fail when called
        assert torch.equal(hidden_of(adapted.target, None), once)
        assert torch.equal(hidden_of(adapted.target, [None]), once)
    linears = [m for m in adapted.target.model.modules() if isinstance(m, nn.Linear)]
    assert not any("forward" in linear.__dict__ for linear in linears)


def test_an_adapter_that_is_unloaded_leaves_the_others_as_they_were(
    adapted: Adapted, wanted: list[list[int]]
) -> None:
    target = load_target(adapted.base, dtype="float32")
    for name in ("pattern", "names", "patterns"):
        target.load_adapter(name, adapted.folders[name])
    target.unload_adapter("names")
    assert target.adapters == ("pattern", "patterns")
    choices = tuple(None if name == "names" else name for name in CHOICES)
    got = speculated(target, wanted, 4, choices)
    assert [got[1], got[2], got[3]] == [wanted[1], wanted[2], wanted[3]]
    assert got[0] != wanted[0]
    with pytest.raises(ValueError, match=r"'names': wanted one of \['pattern', 'patterns'\]"):
        speculated(target, wanted, 4, CHOICES)
    with pytest.raises(ValueError, match="'names'"):
        target.unload_adapter("names")
    with pytest.raises(ValueError, match="not taken"):
        target.load_adapter("pattern", adapted.folders["names"])


def test_two_adapters_of_many_share_a_batch(adapted: Adapted, wanted: list[list[int]]) -> None:
    target = load_target(adapted.base, dtype="float32")
    target.load_adapter("names", adapted.folders["names"])
    for number in range(5):
        target.load_adapter(f"unused {number}", adapted.folders["patterns"])
    target.load_adapter("pattern", adapted.folders["pattern"])
    choices = tuple(None if name == "patterns" else name for name in CHOICES)
    got = speculated(target, wanted, 4, choices)
    assert [got[row] for row in (0, 1, 3, 4)] == [wanted[row] for row in (0, 1, 3, 4)]


@pytest.mark.parametrize("kind", ["gemma2", "phi3", "smollm3"])
def test_adapters_of_other_architectures_decode_as_peft_does(kind: str, tmp_path: Path) -> None:
    model_type, options = ARCHITECTURES[kind]
    base = toy_architecture_folder(tmp_path / "base", model_type, **options)
    folder = toy_adapter(base, tmp_path / "adapter", {"r": 4, "target_modules": "all-linear"})
    target = load_target(base, dtype="float32")
    target.load_adapter("one", folder)
    ids = torch.tensor([some_prompts()[2]] * 2)
    positions = torch.arange(ids.shape[1]).expand(2, -1)
    cache = target.new_cache(rows=2, max_len=32)
    with torch.inference_mode():
        hidden, _ = target.forward(ids, positions, cache, [0, 1], ["one", None])
        for row, adapter in enumerate((folder, None)):
            theirs = peft_model(base, adapter)(ids[:1]).logits
            torch.testing.assert_close(
                target.logits(hidden[row : row + 1]), theirs, atol=5e-4, rtol=1e-3
            )  # float32


def changed(adapter: Path, out: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of `adapter` whose configuration, with its tensors under "tensors", was changed."""
    config = json.loads((adapter / CONFIG).read_text())
    content = {**config, "tensors": load_file(adapter / WEIGHTS)}
    change(content)
    save_file(content.pop("tensors"), out / WEIGHTS)
    (out / CONFIG).write_text(json.dumps(content))
    return out


Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c.update(use_dora=True), "use_dora"),
        (lambda c: c.update(bias="all"), "bias 'all'"),
        (lambda c: c.update(lora_bias=True), "lora_bias"),
        (lambda c: c.update(modules_to_save=["lm_head"]), "modules_to_save"),
        (lambda c: c.update(peft_type="IA3"), "peft_type 'IA3'"),
        (lambda c: c.update(init_lora_weights="pissa"), "init_lora_weights 'pissa'"),
        (lambda c: c.update(layer_replication=[[0, 2]]), "layer_replication"),
        (lambda c: c.update(alora_invocation_tokens=[3]), "alora_invocation_tokens"),
        (lambda c: c.update(fan_in_fan_out=True), "fan_in_fan_out"),
        (lambda c: c.update(what_comes_next=1), "what_comes_next"),
        (lambda c: c.update(target_modules=None), "target_modules None"),
        (lambda c: c.update(r=0), "r 0"),
        (lambda c: c.update(lora_alpha=None), "lora_alpha None"),
        (lambda c: c.update(target_modules=["embed_tokens"]), "embeddings .*embed_tokens"),
        (lambda c: c.update(target_modules=["q_proj", "lm_head"]), "embeddings .*lm_head"),
        (lambda c: c.update(target_modules=["self_attn"]), "LlamaAttention"),
        (lambda c: c.update(target_modules=["nothing"]), "weights for model.layers.0"),
        (lambda c: c.update(target_modules=["q_proj", "down_proj", "up_proj"]), "lacks .*up_proj"),
        (lambda c: c.update(r=5), r"\(4, 48\).*wanted \(\(5, 48\)"),
        (lambda c: c.update(rank_pattern={"q_proj": 2}), r"wanted \(\(2, 32\)"),
        (lambda c: c["tensors"].update({Q: torch.ones(4, 16)}), r"\(4, 16\).*wanted \(\(4, 32\)"),
        (lambda c: c["tensors"][Q].fill_(float("nan")), "not finite"),
        (lambda c: c["tensors"].pop(Q), "only lora_B of model.layers.0.self_attn.q_proj"),
        (lambda c: c["tensors"].update(odd=torch.ones(1)), "holds odd"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_supported_is_refused_by_name(
    adapted: Adapted, change: Callable[[dict[str, Any]], Any], named: str, tmp_path: Path
) -> None:
    folder = changed(adapted.folders["names"], tmp_path, change)
    with pytest.raises(ModelFolderError, match=named):
        adapted.target.load_adapter("odd", folder)
    assert adapted.target.adapters == tuple(ADAPTERS)


def test_an_adapter_of_another_base_is_refused(adapted: Adapted, tmp_path: Path) -> None:
    wide = toy_architecture_folder(tmp_path / "wide", "llama", hidden_size=64)
    other = toy_adapter(wide, tmp_path / "adapter", ADAPTERS["names"])
    with pytest.raises(ModelFolderError, match=r"does not fit this model: .*\(64, 4\).*\(32, 4\)"):
        adapted.target.load_adapter("other", other)


def test_a_folder_that_is_no_adapter_is_refused(adapted: Adapted, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=f"holds no {CONFIG}"):
        adapted.target.load_adapter("none", tmp_path)
    (tmp_path / CONFIG).write_text((adapted.folders["names"] / CONFIG).read_text())
    with pytest.raises(ModelFolderError, match=f"holds no {WEIGHTS}"):
        adapted.target.load_adapter("none", tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"no tensors")
    with pytest.raises(ModelFolderError, match="cannot be read"):
        adapted.target.load_adapter("none", tmp_path)
    (tmp_path / CONFIG).write_text("[")
    with pytest.raises(ModelFolderError, match="JSON"):
        adapted.target.load_adapter("none", tmp_path)


@pytest.mark.slow
def test_the_examples_adapter_gives_pefts_logits_on_the_real_model(tmp_path: Path) -> None:
    from training.smollm2 import unpack

    try:
        base = unpack(tmp_path / "smollm2")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    folder = Path(__file__).parents[2] / "examples" / "docstrings" / "adapter"
    target = load_target(base, dtype="float32")
    target.load_adapter("docstrings", folder)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(20, 40_000, (1, 48), generator=generator)
    positions = torch.arange(48).expand(2, -1)
    cache = target.new_cache(rows=2, max_len=64)
    with torch.inference_mode():
        merged = peft_model(base, folder).merge_and_unload()(ids).logits[0]
        plain = peft_model(base, None)(ids).logits[0]
        hidden, _ = target.forward(
            ids.expand(2, -1), positions, cache, [0, 1], ["docstrings", None]
        )
        got = target.logits(hidden)
    assert (merged - plain).abs().max() > 1
    # Logits reach 30; float32, and merging adds the matrices before they are multiplied.
    torch.testing.assert_close(got[0], merged, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(got[1], plain, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", ["ngram", "model"])
def test_requests_of_several_adapters_share_an_engine_with_a_draft_and_a_prefix_store(
    adapted: Adapted, wanted: list[list[int]], kind: str
) -> None:
    draft = adapted.base if kind == "model" else kind  # the target as it is drafts for all of them
    drafter = load_drafter(draft, adapted.target, rows=3, max_len=MAX_LEN)
    engine = Engine(
        adapted.target, {"x": drafter}, default="x", slots=3, max_len=MAX_LEN, prefix_tokens=256
    )
    requests = [
        Request(str(number), tuple(prompt), TOKENS, adapter=name)
        for number, (prompt, name) in enumerate(zip(some_prompts(), CHOICES, strict=True))
    ]
    tokens, last = decode(engine, requests)
    kept = {key: event.counts for key, event in last.items() if event.counts is not None}
    assert [tokens[str(number)] for number in range(len(CHOICES))] == wanted
    if kind == "model":  # its own rows it drafts without a miss, adapted ones it cannot
        assert kept["1"].acceptance == 1.0
        assert all((kept[n].acceptance or 0) < 1 for n in ("0", "2", "3"))
