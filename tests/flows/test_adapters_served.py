"""Two adapters on one draft, one of them far from what it follows: each is measured by itself on a
real server, the gate names the one, and the pair is bound to both. Toy weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from configuration.prompts import write_prompts
from configuration.settings import Measuring, Pairing, Settings
from evaluation.policy import Policy
from evaluation.report import Report
from flows import keeping, making
from registry.fingerprint import fingerprint
from registry.manifest import write_manifest
from registry.schema import prepare_database
from registry.store import Store
from serving.loading import Host, Loaded
from serving.pairs_on_disk import PairsOnDisk
from serving.settings import ServeSettings
from speculation.records import Phase, Prompt, Verdict, pool
from tests.toys import toy_adapter_folder, toy_target_folder

pytestmark = pytest.mark.slow

EACH = 30  # prompts of an adapter: as many as a slice is judged from
NEAR, FAR = "near", "far"
LINE = Pairing(
    adapters={NEAR: Path("lora/near"), FAR: Path("lora/far")},
    measurement=Measuring(max_tokens=12, time_ngram=False),
    policy=Policy(prompts=3 * EACH, slice_minimum=EACH),
)


def asked() -> list[Prompt]:
    return [
        Prompt(f"{name}-{n}", ({"role": "user", "content": f"number {n} fox"},), adapter=name)
        for n in range(EACH)
        for name in (None, NEAR, FAR)
    ]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    target = toy_target_folder(tmp_path / "target", seed=3)
    toy_adapter_folder(
        target, tmp_path / "lora" / NEAR, r=2, lora_alpha=0.01, target_modules=["q_proj"]
    )
    layers = ["q_proj", "up_proj", "down_proj"]
    toy_adapter_folder(target, tmp_path / "lora" / FAR, r=8, lora_alpha=64, target_modules=layers)
    monkeypatch.setattr("flows.trial.device", lambda: "cpu")
    # What a toy's seconds are is of no interest here, and a busy machine is not to say a word.
    monkeypatch.setattr(Policy, "speed_prompts", property(lambda _: 0))
    made = Settings(home=tmp_path, pairings={"line": LINE})
    write_prompts(made.path(LINE.evaluation_prompts), asked())
    (tmp_path / "mlflow").mkdir()
    prepare_database(f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    return made


def test_the_gate_names_the_adapter_on_which_the_draft_fails_and_the_pair_is_bound_to_both(
    settings: Settings,
) -> None:
    target, store = settings.home / "target", Store(settings.registry_url)
    release = fingerprint(target)
    store.register_release("line", target, release)
    plan = making.begin(settings, "line", release.digest)
    # The draft is the target without adapters: as far as they are from it, it is from them.
    draft = shutil.copytree(target, settings.home / "made" / "draft")
    plan |= {"choice": "given", "why": "it came", "draft": str(draft)}
    out = settings.home / "trial"
    measured = making.measure_pair(settings, LINE, plan, str(draft), out, lambda *_: None)
    assert measured["incomplete"] is None
    report = Report.read(out / "report.json")

    def acceptance(name: str) -> float:
        counts = [r.counts for r in report.of("candidate") if r.prompt.startswith(f"{name}-")]
        return pool(counts).acceptance or 0.0

    assert acceptance("None") == 1.0
    assert acceptance(NEAR) > 0.9
    assert acceptance(FAR) < 0.2
    assert (pool([r.counts for r in report.of("candidate")]).acceptance or 0) > 0.5

    judged = making.judge_report(LINE, measured)
    found = {each.rule: each for each in Verdict.from_json(judged["verdict"]).findings}
    assert judged["phase"] == Phase.FAIL
    assert found["acceptance_floor"].phase is Phase.PASS, "its average hides it"
    assert found[f"slice adapter {FAR}"].phase is Phase.FAIL
    assert found[f"slice adapter {NEAR}"].phase is Phase.PASS

    files = keeping.assemble(str(draft), measured, settings.home / "files")
    kept = keeping.register(settings, "line", plan, str(draft), measured, judged, files)
    pair = store.pair("line", kept["version"])
    assert pair is not None
    manifest = store.manifest(pair)
    assert manifest.adapters == plan["adapters"]
    assert report.conditions.pairs["candidate"] == pair.pair_id, "what was measured is what is kept"

    place = settings.home / "host" / pair.pair_id
    place.mkdir(parents=True)
    shutil.copytree(files / "draft", place / "draft")
    write_manifest(manifest, place)
    checked = PairsOnDisk(place.parent).check(pair.pair_id, "1", None)
    serving = ServeSettings(home=settings.home, pairing="line", registry="http://127.0.0.1:9")
    on = checked.target
    host = Host.load(on.folder, serving, on.release, on.stamp, on.adapter_folders)
    loaded = Loaded.prepare(host, {checked.arm.name: checked.arm}, serving)
    assert (loaded.pair, checked.arm.verified) == (pair.pair_id, True)
    assert set(loaded.limits.adapters) == {NEAR, FAR}
