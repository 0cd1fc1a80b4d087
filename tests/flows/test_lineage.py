"""A pair's manifest names the prompts that its draft really learned from."""

from __future__ import annotations

import hashlib
import json
import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configuration.prompts import write_prompts
from configuration.settings import Pairing, Settings
from evaluation.samples import is_known, question_digest
from flows import making
from flows.lineage import PROMPTS, learned, read_lineage, training_files
from registry.fingerprint import fingerprint, fingerprint_draft
from registry.manifest import Making, PairManifest, write_manifest
from speculation.records import Prompt
from tests.registry import tiny
from tests.toys import toy_target_folder
from training import distill as distillation
from training.main import STEPS
from training.recipe import Recipe
from training.responses import read_responses, split

EXAMPLES = Path(__file__).parents[2] / "examples" / "docstrings"
SMALL = Recipe(responses=20, max_tokens=6, max_prompt_tokens=60, draft_vocab=64, epochs=1, unroll=2)
ASKED = [Prompt(f"p{n}", ({"role": "user", "content": f"the {n} fox"},)) for n in range(30)]
JUDGING = [Prompt(f"q{n}", ({"role": "user", "content": f"a {n} dog"},)) for n in range(30)]
# As the corpus asks of bz2, in Python 3.11; the shipped draft learned from it.
LEARNED = """Explain what this Python function does, in plain words, as its docstring.

def seekable(self):
    return self.readable() and self._buffer.seekable()"""


def test_a_draft_that_was_trained_is_told_of_by_the_answers_it_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, line = Settings(home=tmp_path), Pairing(recipe=SMALL)
    write_prompts(settings.path(line.train_prompts), ASKED)
    write_prompts(settings.path(line.evaluation_prompts), JUDGING)
    plan: dict[str, Any] = {
        **{"target": str(toy_target_folder(tmp_path / "target")), "choice": "scratch"},
        **{"parent_draft": None},
    }
    judged: set[str] = set()
    validate = distillation.validate

    def validated(head: Any, embedding: Any, responses: Any, *rest: Any) -> Any:
        judged.update(response.prompt_id for response in responses)
        return validate(head, embedding, responses, *rest)

    monkeypatch.setattr(distillation, "validate", validated)
    monkeypatch.setattr(making, "device", lambda: "cpu")
    # In this process, so that the judged answers can be seen.
    monkeypatch.setattr(
        making, "in_child", lambda step, spec, progress: STEPS[step](spec, progress)
    )
    made = making.regenerate_answers(settings, line, plan, tmp_path / "answers", print)
    answers = Path(made["responses"])
    args = (settings, line, plan, answers, tmp_path / "out", lambda *_: None)
    draft = making.distil_draft(*args)["draft"]
    (tmp_path / "out" / PROMPTS).unlink()
    assert (Path(draft) / "tokenizer.json").is_file(), "its target's, to be compared by"
    assert making.distil_draft(*args)["draft"] == draft, "killed before it was told, it is told now"

    told = read_lineage(draft)
    hashes = {prompt.id: question_digest(prompt) for prompt in ASKED}
    learned = {r.prompt_id for r in read_responses(answers) if r.answer_len > 1}
    assert set(told.prompts_validation) == {hashes[prompt_id] for prompt_id in judged}
    assert set(told.prompts_train) == {hashes[prompt_id] for prompt_id in learned - judged}
    assert len(learned) <= SMALL.responses < len(ASKED), "prompts nobody answered taught nothing"
    assert told.recipe["draft_vocab"] == SMALL.draft_vocab
    assert len(told.data) == 64
    assert [path.name for path in training_files(draft)] == ["recipe.json", "curves.json"]


def test_a_question_has_one_hash_whatever_its_answer_is_compared_with() -> None:
    bare = Prompt("1", ({"role": "user", "content": "why?"},))
    same = Prompt("2", ({"content": "why?", "role": "user"},), "so", "docstring-class", "en")
    assert question_digest(same) == question_digest(bare)
    others = [
        Prompt("1", ({"role": "user", "content": "why"},)),
        Prompt("1", ({"role": "system", "content": "why?"},)),
        Prompt("1", (*bare.messages, *bare.messages)),
    ]
    assert len({question_digest(each) for each in (bare, *others)}) == 4


@pytest.mark.parametrize(
    "again",
    [
        *(
            "why  is\nthe cafe\u0301 shut?\n",
            " why is the caf\u00e9 shut?",
            "why is the café\tshut?",
        ),
        *("why is\u200b the caf\u00e9 shut?", "\ufeffwhy is the ca\u00adf\u00e9 shut?\u2060"),
        *("why is the caf\u00e9 shut?\u3164", "why is the caf\u00e9\ufe0f shut?\u2800"),
        "\uff57hy is the caf\u00e9\u00a0shut\uff1f",
    ],
)
def test_a_question_is_the_same_however_its_spaces_and_accents_are_written(again: str) -> None:
    asked, other = (
        Prompt(name, ({"role": "user", "content": text},))
        for name, text in (("1", "why is the caf\u00e9 shut?"), ("2", again))
    )
    assert question_digest(other) == question_digest(asked)
    assert is_known(other, {question_digest(asked)})


def test_an_ordinary_question_has_the_hash_that_earlier_versions_gave_it() -> None:
    for text in (
        "why?",
        "为什么咖啡馆关门？",
        "لماذا المقهى مغلق؟",
        "कैफ़े बंद क्यों है?",
        "x = [1, 2]\n",
    ):
        asked = Prompt("1", ({"role": "user", "content": text},))
        composed = unicodedata.normalize("NFC", " ".join(text.split()))
        before = json.dumps([{"role": "user", "content": composed}], sort_keys=True)
        assert is_known(asked, {hashlib.sha256(before.encode()).hexdigest()})


def test_what_a_draft_learned_is_not_known_where_no_record_of_it_lies_beside(
    tmp_path: Path,
) -> None:
    assert learned("ngram") == frozenset(), "known: there is nothing to learn"
    made, copied = tiny.head(tmp_path / "made" / "draft"), tmp_path / "copied" / "draft"
    told = {"draft": fingerprint_draft(made).digest, "data": "", "train": ["a"], "validation": []}
    (made.parent / PROMPTS).write_text(json.dumps(told))
    shutil.copytree(made, copied)
    assert learned(str(made)) == frozenset("a")
    assert learned(str(copied)) is None
    target = tiny.target(tmp_path / "target")
    for made_so, known in ((Making(), None), (Making(prompts_train=("ab",)), frozenset(["ab"]))):
        pair = PairManifest(fingerprint(target), "", fingerprint_draft(copied), 8, made_so)
        write_manifest(pair, copied.parent)
        assert learned(str(copied)) == known


def test_the_split_is_the_seeds_and_loses_nothing() -> None:
    training, validation = split(range(100), 7)
    assert split(range(100), 7) == (training, validation)
    assert split(range(100), 8) != (training, validation)
    assert sorted([*training, *validation]) == list(range(100))
    assert len(validation) == 6


def test_what_lies_beside_another_draft_is_not_taken_for_its_own(tmp_path: Path) -> None:
    draft = tiny.head(tmp_path / "draft")
    told = {"draft": "0" * 64, "data": "", "train": ["a"], "validation": []}
    (tmp_path / PROMPTS).write_text(json.dumps(told))
    (tmp_path / "recipe.json").write_text('{"epochs": 9}')
    assert read_lineage(str(draft)) == Making()
    assert training_files(str(draft)) == []
    (tmp_path / PROMPTS).write_text(json.dumps({**told, "draft": fingerprint_draft(draft).digest}))
    assert read_lineage(str(draft)).recipe == {"epochs": 9}


def test_a_draft_that_is_kept_was_made_as_its_pair_says(tmp_path: Path) -> None:
    target, draft = tiny.target(tmp_path / "target"), tiny.head(tmp_path / "draft")
    making = Making(recipe={"epochs": 3}, prompts_train=("a" * 64,))
    manifest = PairManifest(fingerprint(target), "", fingerprint_draft(draft), 8, making)
    write_manifest(manifest, tmp_path)
    assert read_lineage(str(draft)) == making


@pytest.mark.parametrize("kind", ["ngram", "none"])
def test_a_draft_without_weights_was_not_made_of_anything(kind: str) -> None:
    assert read_lineage(kind) == Making()
    assert training_files(kind) == []


def test_the_draft_that_is_shipped_tells_how_it_was_made() -> None:
    draft = str(EXAMPLES / "draft")
    told = read_lineage(draft)
    assert (len(told.prompts_train), len(told.prompts_validation)) == (1628, 104)
    # One source stands in two modules; this draft is older than the rule that it is asked once.
    assert len(set(told.prompts_train) & set(told.prompts_validation)) == 1
    asked = Prompt("", ({"role": "user", "content": LEARNED},), "its docstring", "docstring", "en")
    known = learned(draft)
    assert known == frozenset([*told.prompts_train, *told.prompts_validation])
    for told_again in (LEARNED, f"\n{LEARNED} \n"):
        again = replace(asked, messages=({"role": "user", "content": told_again},))
        assert is_known(again, known), "though its hashes are of questions as they were written"
    curves = json.loads(training_files(draft)[1].read_text())
    assert len(curves) == told.recipe["epochs"] == 5
