"""The target is released again under its name, requantised: measured for real on it, the old draft
is blocked, and each release is served by its own pair only. Toy weights, a real trial server."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from configuration.prompts import write_prompts
from configuration.settings import Measuring, Pairing, Settings
from evaluation.policy import Policy
from flows import keeping, making
from registry.fingerprint import Release, difference, fingerprint
from registry.manifest import write_manifest
from registry.promotion import Outcome, promote
from registry.schema import prepare_database
from registry.store import PairVersion, Store
from serving.arms import RefusedPairError, registered_arm, trial_arms
from serving.pairs_on_disk import PairsOnDisk
from speculation.records import Finding, Phase, Prompt, Verdict
from tests.toys import toy_target_folder

pytestmark = pytest.mark.slow

PROMPTS = 40
LINE = Pairing(
    measurement=Measuring(max_tokens=12, time_ngram=False),
    policy=Policy(prompts=PROMPTS),
)


def requantised(target: Path, again: Path, *, bits: int) -> Path:
    """The same model with each row of its matrices rounded to a few bits, as it is dequantised to
    be run: what has a quantised name for people has the same shapes for a server."""
    shutil.copytree(target, again)
    most = 2 ** (bits - 1) - 1
    weights = load_file(target / "model.safetensors")
    for name, array in weights.items():
        if array.ndim == 2:
            scale = np.abs(array).max(axis=1, keepdims=True) / most
            scale = np.where(scale == 0, 1, scale)  # of the row of what pads
            weights[name] = (np.round(array / scale) * scale).astype(np.float32)
    save_file(weights, again / "model.safetensors", {"format": "pt"})
    return again


class Line:
    """A pairing whose drafts are measured on a real trial server, and kept as a retrain keeps
    them."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.store = settings, Store(settings.registry_url)

    def release(self, target: Path) -> Release:
        released = fingerprint(target)
        self.store.register_release("line", target, released)
        return released

    def tried(self, release: Release, draft: Path, name: str) -> tuple[dict[str, Finding], Any]:
        """What the gate found of the draft on that release, and all that is kept of it."""
        plan = making.begin(self.settings, "line", release.digest)
        plan |= {"choice": "given", "why": "it came", "draft": str(draft)}
        out = self.settings.home / name
        measured = making.measure_pair(self.settings, LINE, plan, str(draft), out, lambda *_: None)
        assert measured["incomplete"] is None
        judged = making.judge_report(LINE, measured)
        found = Verdict.from_json(judged["verdict"]).findings
        return {each.rule: each for each in found}, (plan, draft, measured, judged)

    def kept(self, tried: Any) -> PairVersion:
        plan, draft, measured, judged = tried
        files = keeping.assemble(str(draft), measured, Path(measured["folder"]) / "files")
        made = keeping.register(self.settings, "line", plan, str(draft), measured, judged, files)
        pair = self.store.pair("line", made["version"])
        assert pair is not None
        place = self.settings.home / "host" / pair.pair_id
        place.mkdir(parents=True)
        shutil.copytree(files / "draft", place / "draft")
        write_manifest(self.store.manifest(pair), place)
        return pair


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr("flows.trial.device", lambda: "cpu")
    # What a toy's seconds are is of no interest here, and a busy machine is not to say a word.
    monkeypatch.setattr(Policy, "speed_prompts", property(lambda _: 0))
    settings = Settings(home=tmp_path, pairings={"line": LINE})
    asked = [
        Prompt(f"q{n}", ({"role": "user", "content": f"number {n} fox"},)) for n in range(PROMPTS)
    ]
    write_prompts(settings.path(LINE.evaluation_prompts), asked)
    (tmp_path / "mlflow").mkdir()
    prepare_database(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    return Line(settings)


def test_the_old_draft_is_measured_on_the_requantised_target_and_blocked(
    line: Line, tmp_path: Path
) -> None:
    store, by_speed = line.store, "a toy has no speed"
    first = toy_target_folder(tmp_path / "1" / "target", seed=3)
    before = line.release(first)
    # A draft that follows its target to the word, as long as that is the target it was made for.
    draft = shutil.copytree(first, tmp_path / "made" / "draft")
    found, tried = line.tried(before, draft, "before")
    assert found["acceptance_floor"].phase is Phase.PASS
    old = line.kept(tried)
    assert promote(store, "line", old.version, expect=None, force=by_speed).ok

    second = requantised(first, tmp_path / "2" / "target", bits=3)
    after = line.release(second)
    assert after.digest != before.digest
    assert "weights" in difference(before, after)
    assert after.tokenizer == before.tokenizer, "nothing but the weights tells them apart"
    there = PairsOnDisk(tmp_path / "host").check(old.pair_id, "1", None).target
    here = replace(there, folder=second, release=after)
    assert not trial_arms(here, {"candidate": str(draft)})["candidate"].verified

    found, tried = line.tried(after, draft, "after")
    assert found["acceptance_floor"].phase is Phase.FAIL
    assert found["parity"].phase is Phase.PASS, "the texts are the new target's all the same"
    lost = line.kept(tried)
    assert (lost.release, lost.verdict) == (after.digest, "FAIL")
    assert lost.pair_id != old.pair_id, "the same draft on another release is another pair"
    assert promote(store, "line", lost.version, expect=old.version).outcome is Outcome.REFUSED

    # A draft that was made for the new release follows it, and each pair serves its own only.
    own_draft = shutil.copytree(second, tmp_path / "made-anew" / "draft")
    found, tried = line.tried(after, own_draft, "own")
    assert found["acceptance_floor"].phase is Phase.PASS
    own = line.kept(tried)
    assert promote(store, "line", own.version, expect=old.version, force=by_speed).ok
    checked = PairsOnDisk(tmp_path / "host").check(own.pair_id, "3", there)
    assert (checked.target.folder, checked.arm.verified) == (second, True)
    for pair, elsewhere in ((old, here), (own, there)):
        place = tmp_path / "host" / pair.pair_id
        with pytest.raises(RefusedPairError, match="was validated for release .* weights changed"):
            registered_arm(elsewhere, store.manifest(pair), place)
