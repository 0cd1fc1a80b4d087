"""The demo's promises that need no servers: one story a home, whole files, an honest exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli import demo_real, demo_steps
from cli.demo import NO_SWAP, _end, _noted, _same_demo
from cli.demo_story import PROMPTS, Story
from cli.exits import Exit
from configuration.prompts import read_prompts
from registry.adapters import fingerprint_adapter
from registry.errors import FolderError
from registry.fingerprint import fingerprint_draft
from registry.folders import adapter_weights_of, weights_of
from speculation.records import Prompt
from training.corpus import standard_library

CHOSEN = {"target": None, "from_scratch": False, "prompts": None, "tiny": True}


def prompt(name: str) -> Prompt:
    return Prompt(name, ({"role": "user", "content": name},))


def story(prompts: Callable[[Path], dict[str, Sequence[Prompt]]] | None = None) -> Story:
    return Story(
        first_release=lambda out: out,
        second_release=lambda first, out, run: out,
        initial_draft=None,
        prompts=prompts or (lambda target: {name: [prompt(name)] for name in PROMPTS}),
        evaluation_prompts=24,
        max_tokens=24,
        recipe={"epochs": 2, "learning_rate": 0.003},
    )


def test_a_home_tells_one_story_only(tmp_path: Path) -> None:
    (tmp_path / "targets").mkdir()
    _same_demo(tmp_path, CHOSEN)
    _same_demo(tmp_path, CHOSEN)
    with pytest.raises(ValueError, match="was begun with"):
        _same_demo(tmp_path, {**CHOSEN, "prompts": 30})
    _same_demo(tmp_path, CHOSEN)  # a refusal changes nothing


def test_prepared_twice_is_prepared_once(tmp_path: Path) -> None:
    demo_steps.prepare(tmp_path, story())

    def never(target: Path) -> dict[str, Sequence[Prompt]]:
        raise AssertionError("all were there")

    demo_steps.prepare(tmp_path, story(never))
    for name in PROMPTS:
        assert read_prompts(tmp_path / "prompts" / f"{name}.jsonl") == [prompt(name)]


@pytest.mark.parametrize("lost", PROMPTS)
def test_killed_while_prompts_are_written_the_rest_is_written_next_time(
    tmp_path: Path, lost: str
) -> None:
    demo_steps.prepare(tmp_path, story())
    (tmp_path / "prompts" / f"{lost}.jsonl").unlink()
    demo_steps.prepare(tmp_path, story())
    assert read_prompts(tmp_path / "prompts" / f"{lost}.jsonl") == [prompt(lost)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pairings.docstrings\n", "TOML"),
        ('[pairings.other]\ntarget = "x"\n', "got no pairing docstrings"),
        ('[pairings.docstrings]\ntarget = "elsewhere"\n', "got another pairing docstrings"),
    ],
)
def test_a_configuration_that_is_not_the_demos_is_refused_before_the_long_work(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "paceline.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        demo_steps.prepare(tmp_path, story())
    assert not (tmp_path / "prompts").exists()
    assert (tmp_path / "paceline.toml").read_text() == text


@pytest.mark.parametrize(
    ("phase", "promoted", "code"),
    [
        ("PASS", True, Exit.YES),
        ("PASS", False, Exit.NO),  # overtaken or superseded: nothing was swapped
        ("FAIL", False, Exit.NO),
        ("INCONCLUSIVE", False, Exit.INCONCLUSIVE),
    ],
)
def test_only_a_pair_that_was_promoted_is_a_yes_and_every_end_is_noted(
    tmp_path: Path, phase: str, promoted: bool, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = {"phase": phase, "promoted": promoted, "statement": "so it ended"}
    record = _noted(tmp_path, outcome, [], NO_SWAP, {"prepare": 1.26})
    assert json.loads((tmp_path / "demo.json").read_text()) == record
    assert record["verdict"] == phase
    assert record["swap"]["requests_in_flight"] == record["swap"]["failed"] == 0
    assert record["seconds"] == {"prepare": 1.3}
    assert _end(tmp_path, record) == code
    assert "so it ended" in capsys.readouterr().out


def test_a_target_without_weights_is_refused_and_nothing_of_it_kept(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(FolderError):
        demo_real._copied(str(source), out)
    assert not out.exists()


def test_no_function_is_in_two_sets_of_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tree = standard_library() / "asyncio"  # the whole library takes too long
    monkeypatch.setattr(demo_real, "standard_library", lambda: tree)
    monkeypatch.setattr(demo_real, "TRAFFIC", 4)
    sets = demo_real.docstring_prompts(tmp_path)
    assert set(sets) == set(PROMPTS)
    assert all(sets.values()), {name: len(found) for name, found in sets.items()}
    ids = [found.id for name in PROMPTS for found in sets[name]]
    assert len(set(ids)) == len(ids)


def test_the_shipped_draft_is_a_head_of_the_shapes_that_its_config_names() -> None:
    folder = demo_real.EXAMPLES / "draft"
    assert fingerprint_draft(folder).kind == "head"
    config = json.loads((folder / "config.json").read_text())
    hidden, drafted = config["hidden_size"], config["draft_vocab_size"]
    shapes = {name: tensor.shape for name, tensor in weights_of(folder).items()}
    assert shapes["lm_head.weight"] == (drafted, hidden)
    assert shapes["d2t"] == (drafted,)
    assert shapes["t2d"] == (config["vocab_size"],)
    assert shapes["fc.weight"] == (hidden, len(config["eagle_aux_hidden_state_layer_ids"]) * hidden)


def test_the_shipped_adapter_has_the_rank_that_its_config_names() -> None:
    folder = demo_real.EXAMPLES / "adapter"
    assert fingerprint_adapter(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = adapter_weights_of(folder)
    assert {name.split(".")[-3] for name in tensors} == set(config["target_modules"])
    for name, tensor in tensors.items():
        rank = tensor.shape[0] if ".lora_A." in name else tensor.shape[1]
        assert rank == config["r"], name
