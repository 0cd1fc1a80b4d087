"""The demo's promises that need no servers: one story a home, whole files, an honest exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cli import demo_needs, demo_real, demo_steps
from cli.demo import NO_SWAP, _end, _noted, _same_demo
from cli.demo_story import PROMPTS, Story
from cli.exits import Exit
from cli.main import app
from configuration.prompts import read_prompts
from configuration.reading import read_settings
from evaluation.policy import Policy
from evaluation.samples import question_digest
from flows import lineage
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


def test_the_pairing_judges_by_the_storys_prompts_and_the_shipped_policy(tmp_path: Path) -> None:
    demo_steps.prepare(tmp_path, story())
    line = read_settings(tmp_path, environ={}).pairings[demo_steps.PAIRING]
    assert line.policy == Policy(prompts=24)
    assert (line.recipe.epochs, line.measurement.max_tokens) == (2, 24)


@pytest.mark.parametrize(("asked", "judging"), [(None, 60), (30, 30)])
def test_the_real_story_departs_from_the_shipped_recipe_in_one_length_only(
    tmp_path: Path, asked: int | None, judging: int
) -> None:
    told = demo_real.real_story(tmp_path, None, from_scratch=False, prompts=asked)
    assert told.recipe == {"max_tokens": 80}
    assert told.max_tokens == 80, "what is learned is as long as what is judged"
    assert told.evaluation_prompts == judging
    assert told.initial_draft == demo_real.EXAMPLES / "draft"


@pytest.mark.parametrize(
    ("free", "options", "said"),
    [
        (1.9e9, ["--tiny"], "got 1.9 GB free"),
        (2.5e9, ["--target", "own"], "wanted 3.0 GB"),
    ],
)
def test_a_disk_that_is_too_full_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    with (tmp_path / "own" / "model.safetensors").open("wb") as sparse:
        sparse.truncate(500_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=int(free)))
    home = tmp_path / "not" / "there"
    done = CliRunner().invoke(app, ["demo", "--home", str(home), *options])
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert not home.parent.exists()


def test_a_demo_that_was_begun_goes_on_however_full_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(ValueError, match=r"0\.0 GB free"):
        demo_needs.check_space(tmp_path, None)
    (tmp_path / "demo").mkdir()
    demo_needs.check_space(tmp_path, None)


def test_everything_that_is_not_installed_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = ("mlflow", "evaluate")
    monkeypatch.setattr(demo_needs, "find_spec", lambda name: None if name in lacking else True)
    home = tmp_path / "home"
    done = CliRunner().invoke(app, ["demo", "--tiny", "--home", str(home)])
    assert done.exit_code == 4
    assert "mlflow, evaluate" in done.output
    assert "paceline[all]" in done.output
    assert not home.exists()


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


@pytest.fixture
def asyncio_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tokenizer, and a corpus that takes no time."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tree = standard_library() / "asyncio"
    monkeypatch.setattr(demo_real, "standard_library", lambda: tree)
    monkeypatch.setattr(demo_real, "TRAFFIC", 4)
    return tmp_path


def test_no_function_is_in_two_sets_of_prompts(asyncio_only: Path) -> None:
    sets = demo_real.docstring_prompts(asyncio_only)
    assert set(sets) == set(PROMPTS)
    assert all(sets.values()), {name: len(found) for name, found in sets.items()}
    ids = [found.id for name in PROMPTS for found in sets[name]]
    assert len(set(ids)) == len(ids)


def test_what_the_shipped_draft_learned_from_is_neither_judged_by_nor_asked(
    asyncio_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "learned", lambda draft: frozenset())
    before = demo_real.docstring_prompts(asyncio_only)
    held_out = [*before["traffic"], *before["evaluation"]]
    taught = [held_out[0], held_out[6]]
    known = frozenset(question_digest(Prompt("?", each.messages)) for each in taught)
    monkeypatch.setattr(lineage, "learned", lambda draft: known)
    after = demo_real.docstring_prompts(asyncio_only)
    left = [each for each in held_out if each not in taught]
    assert [*after["traffic"], *after["evaluation"]] == left, "the others, in their order"
    assert len(after["traffic"]) == 4
    assert after["train"] == before["train"]


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
