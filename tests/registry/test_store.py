from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from registry import upload
from registry.errors import IncompatibleError, ManifestError, NotFoundError, StoreError
from registry.fingerprint import fingerprint
from registry.locks import locked
from registry.manifest import read_manifest, verify_files
from registry.promotion import promote
from registry.schema import prepare_database
from registry.store import PairVersion, Store
from registry.versions import NAMES_BEFORE, OURS, PAIR_ID
from speculation.records import Phase, Verdict
from tests.registry import tiny
from tests.registry.conftest import manifest_of, pair_files, passed, registered


def runs_of_pairs(store: Store, pair: PairVersion) -> list[str]:
    """The runs in the pair's experiment that are of a pair: the lineage has one of its own."""
    experiment = store.client.get_run(pair.run_id).info.experiment_id
    found = store.client.search_runs([experiment], "tags.`paceline.pair_id` != ''")
    return [run.info.run_id for run in found]


def test_a_release_is_registered_once_whatever_it_is_called(
    store: Store, target: Path, tmp_path: Path
) -> None:
    first = store.register_release("docstrings", target, fingerprint(target))
    again = store.register_release("docstrings", target, fingerprint(target))
    other = tiny.target(tmp_path / "other", seed=1)
    second = store.register_release("docstrings", other, fingerprint(other))
    assert (first.version, again.version, second.version) == (1, 1, 2)
    assert store.pairs("docstrings") == []


def test_a_release_stays_where_it_is_until_that_place_holds_it_no_more(
    store: Store, target: Path, tmp_path: Path
) -> None:
    def seen(folder: Path) -> str:
        again = store.register_release("docstrings", folder, released)
        (stored,) = store.releases("docstrings")
        assert (stored.version, stored.uri) == (1, again.uri)
        return stored.uri

    released = fingerprint(target)
    copies = [shutil.copytree(target, tmp_path / name) for name in ("first", "second")]
    assert [seen(folder) for folder in [*copies, *copies]] == [str(copies[0])] * 4
    tiny.target(copies[0], seed=1)  # written over by another release
    assert [seen(folder) for folder in [copies[1], target]] == [str(copies[1])] * 2
    shutil.rmtree(copies[1])
    assert seen(target) == str(target)


def test_nobody_waits_for_us_while_a_release_s_place_is_read(
    store: Store, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = fingerprint(target)
    store.register_release("docstrings", target, released)
    read = []

    def holds(folder: Path, release: str) -> bool:
        with locked(store._locks / "docstrings.lock", timeout_seconds=0):
            read.append(folder)
        return True

    monkeypatch.setattr("registry.store.holds", holds)
    copy = shutil.copytree(target, tmp_path / "copy")
    assert store.register_release("docstrings", copy, released).uri == str(target)
    assert read == [target]


def test_a_pair_comes_back_with_its_tags_alias_and_manifest(
    store: Store, target: Path, tmp_path: Path
) -> None:
    files = tmp_path / "pair"
    pair = registered(store, target, files)
    manifest = read_manifest(files)
    assert (pair.version, pair.pair_id) == (1, manifest.pair_id)
    assert pair.release == fingerprint(target).digest
    assert (pair.draft_kind, pair.verdict, pair.passed) == ("head", "PASS", True)
    assert (pair.figure("acceptance"), pair.figure("speedup")) == (0.61, 1.52)
    assert pair.figure("odd") is None
    assert pair.aliases == ("candidate",)
    assert store.pair("docstrings", "candidate") == store.pair("docstrings", 1) == pair
    assert store.pairs("docstrings") == [pair]
    assert store.champion("docstrings") is None
    assert store.manifest(pair) == manifest
    assert "draft/model.safetensors" in manifest.files
    verify_files(manifest, files)


def test_the_versions_page_tells_its_story(store: Store, target: Path, tmp_path: Path) -> None:
    pair = registered(store, target, tmp_path / "pair")
    page = store.client.get_model_version("docstrings", "1").description or ""
    assert page.startswith("PASS: all 1 rules hold: floor 0.610 (limit 0.4)\n")
    assert "Made because **release 2** was trained on docstrings." in page
    assert "| alpha-hat&ensp; |" in page
    assert "| candidate&ensp; | 0.610&ensp; | 123.4&ensp; | 80&ensp; |" in page
    assert "| 0.610, 0.570 to 0.650, n 80&ensp; |" in page
    assert "[docstrings.target v1](#/models/docstrings.target/versions/1)" in page
    picture = f"get-artifact?path=report%2Fhazards.png&run_uuid={pair.run_id}"
    assert f"![report/hazards.png]({picture})" in page
    run = store.client.get_run(pair.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.note.content"] == page
    assert run.data.metrics["acceptance"] == 0.61
    assert "odd" not in run.data.metrics
    assert run.data.params["recipe.optimizer.learning_rate"] == "0.001"
    assert [m.value for m in store.client.get_metric_history(pair.run_id, "train/loss")] == [
        pytest.approx(1 / n) for n in (1, 2, 3)
    ]
    assert run.outputs is not None
    assert run.inputs is not None
    assert [model.model_id for model in run.outputs.model_outputs] == [pair.model_id]
    (release,) = store.releases("docstrings")
    assert [model.model_id for model in run.inputs.model_inputs] == [release.model_id]
    assert [a.path for a in store.client.list_artifacts(pair.run_id, "report")] == [
        "report/hazards.png",
        "report/report.json",
        "report/verdict.json",
    ]
    told = store.client.download_artifacts(pair.run_id, "report/verdict.json", str(tmp_path))
    assert Verdict.from_json(json.loads(Path(told).read_text())) == passed()
    assert "report/verdict.json" in store.manifest(pair).files
    assert f"/runs/{pair.run_id}/artifacts/report/verdict.json)" in page
    overview = store.client.get_registered_model("docstrings").description
    assert "No champion yet" in overview
    assert "[v1](#/models/docstrings/versions/1)&ensp; | `candidate`&ensp; | PASS&ensp;" in overview
    releases_page = store.client.get_registered_model("docstrings.target").description or ""
    assert releases_page.startswith("The releases of the target of [docstrings]")
    target_page = store.client.get_model_version("docstrings.target", "1").description or ""
    assert f"| weights&ensp; | `{fingerprint(target).weights}`&ensp; |" in target_page


def test_the_reports_pages_lie_beside_it_as_they_were_written(
    store: Store, target: Path, tmp_path: Path
) -> None:
    files = pair_files(tmp_path / "pair", "ngram")
    pages = {"report.html": "<!doctype html>\n<h1>PASS</h1>\n", "report.md": "# PASS\n"}
    for name, text in pages.items():
        (files / "report" / name).write_text(text)
    pair = registered(store, target, files, "ngram")
    listed = {found.path for found in store.client.list_artifacts(pair.run_id, "report")}
    assert {f"report/{name}" for name in pages} <= listed
    for name, text in pages.items():
        found = store.client.download_artifacts(pair.run_id, f"report/{name}", str(tmp_path))
        assert Path(found).read_text() == text


def test_a_pair_is_linked_to_its_data_its_parent_its_environment_and_where_its_target_lives(
    store: Store, target: Path, tmp_path: Path
) -> None:
    theirs = store.client.create_registered_model("their-llm").name
    store.client.create_model_version(theirs, source=str(tmp_path), run_id="0" * 32)
    for source in ("models:/their-llm/2", "models:/nobodys/1", "runs:/1/model", "their-llm/1"):
        with pytest.raises(ValueError, match="wanted models:/NAME/VERSION of a version at"):
            store.register_release("docstrings", target, fingerprint(target), source=source)
    released = store.register_release("docstrings", target, fingerprint(target))
    assert released.source == ""
    linked = store.register_release(
        "docstrings", target, fingerprint(target), source="models:/their-llm/1"
    )
    assert (linked.version, linked.source) == (1, "models:/their-llm/1")
    assert store.releases("docstrings") == [linked]
    told = store.client.get_model_version("docstrings.target", "1").description or ""
    assert "It is [their-llm v1](#/models/their-llm/versions/1) of this MLflow." in told

    parent = registered(store, target, tmp_path / "parent")
    files = pair_files(tmp_path / "child", "head", seed=1)
    manifest = manifest_of(target, files, "head", report="9" * 64)
    making = replace(manifest.making, parent=parent.pair_id, data="d" * 64)
    child = store.register_pair(
        "docstrings", replace(manifest, making=making), files, report={}, verdict=None
    )
    assert child.parent == parent.pair_id
    page = store.client.get_model_version("docstrings", "2").description or ""
    assert f"[v1](#/models/docstrings/versions/1), `{parent.pair_id}`" in page
    assert ", which is [their-llm v1](#/models/their-llm/versions/1), " in page
    assert "![lineage](get-artifact?path=lineage.svg&run_uuid=" in page
    inputs = store.client.get_run(child.run_id).inputs
    assert inputs is not None
    assert {model.model_id for model in inputs.model_inputs} == {released.model_id, parent.model_id}
    sources = [json.loads(data.dataset.source)["sha256"] for data in inputs.dataset_inputs]
    assert sorted(sources) == ["9" * 64, "d" * 64]
    assert "environment.json" in store.manifest(child).files
    environment = json.loads((files / "environment.json").read_text())
    assert environment["python"] == platform.python_version()
    assert environment["distributions"]["mlflow"]


def test_a_draft_that_is_kept_for_a_new_release_links_the_curves_of_its_training(
    store: Store, target: Path, tmp_path: Path
) -> None:
    """And so does one that is kept from that."""
    trained = registered(store, target, tmp_path / "trained")
    before = trained
    for seed in (2, 3):
        files = shutil.copytree(tmp_path / "trained", tmp_path / str(seed))
        shutil.rmtree(files / "training")
        manifest = manifest_of(tiny.target(tmp_path / f"target-{seed}", seed=seed), files, "head")
        making = replace(manifest.making, parent=before.pair_id)
        kept = store.register_pair(
            "docstrings", replace(manifest, making=making), files, report={}, verdict=None
        )
        page = store.client.get_model_version("docstrings", str(kept.version)).description or ""
        assert f"[of the run that trained its draft](#/experiments/1/runs/{trained.run_id})" in page
        before = kept
    page = store.client.get_model_version("docstrings", "1").description or ""
    assert "none of its own" not in page


def test_what_registering_could_not_compare_is_said_on_the_page(
    store: Store, target: Path, tmp_path: Path
) -> None:
    """Two exchanged tokens of a head without tokens would not be seen: nobody is to think so."""
    for number, (uri, said) in enumerate(
        {
            str(target): "the head carries no tokenizer.json",
            "s3://models/target": "s3://models/target is no folder of that host",
        }.items(),
        1,
    ):
        files = pair_files(tmp_path / str(number), "head", seed=number)
        manifest = replace(manifest_of(target, files, "head"), release_uri=uri)
        store.register_pair("docstrings", manifest, files, report={}, verdict=None)
        page = store.client.get_model_version("docstrings", str(number)).description or ""
        assert said in page


def test_a_pair_is_registered_once_and_measured_again_it_is_a_new_version(
    store: Store, target: Path, tmp_path: Path
) -> None:
    first = registered(store, target, tmp_path / "a", phase=Phase.INCONCLUSIVE, report="1" * 64)
    again = registered(store, target, tmp_path / "a", phase=Phase.INCONCLUSIVE, report="1" * 64)
    judged = registered(store, target, tmp_path / "b", phase=Phase.PASS, report="2" * 64)
    assert first == again
    assert (judged.version, judged.pair_id) == (2, first.pair_id)
    assert store.pair("docstrings", "candidate") == judged
    assert first.aliases == ()
    assert len(runs_of_pairs(store, first)) == 2


def test_ngram_and_no_draft_are_pairs_too(store: Store, target: Path, tmp_path: Path) -> None:
    kinds = [registered(store, target, tmp_path / kind, kind) for kind in ("ngram", "none")]
    assert [pair.draft_kind for pair in kinds] == ["ngram", "none"]
    assert [pair.tags["size"] for pair in kinds] == ["0.0 MB", "0.0 MB"]
    assert kinds[0].pair_id != kinds[1].pair_id


def test_all_of_a_pairing_can_be_told_at_once(store: Store, target: Path, tmp_path: Path) -> None:
    first = registered(store, target, tmp_path / "a", phase=Phase.FAIL)
    second = registered(store, target, tmp_path / "b", seed=1)
    state = store.describe("docstrings")
    assert state.pairs == (second, first)
    assert state.named("candidate") == second
    assert state.named("champion") is None
    assert [release.version for release in state.releases] == [1]
    assert state.to_json()["pairs"][0]["pair_id"] == second.pair_id
    assert store.describe("unheard-of").pairs == ()


def test_a_draft_that_is_not_the_manifests_is_refused(
    store: Store, target: Path, tmp_path: Path
) -> None:
    files = pair_files(tmp_path / "pair", "head")
    manifest = manifest_of(target, files, "head")
    tiny.head(files / "draft", seed=7)
    with pytest.raises(IncompatibleError, match="binds the head draft"):
        store.register_pair("docstrings", manifest, files, report={}, verdict=None)
    assert store.pairs("docstrings") == []


def test_a_draft_for_another_target_is_refused(store: Store, target: Path, tmp_path: Path) -> None:
    files = pair_files(tmp_path / "pair", "ngram")
    tiny.head(files / "draft", hidden_size=16)
    manifest = manifest_of(target, files, "head")
    with pytest.raises(IncompatibleError, match="made for a target with hidden_size 16"):
        store.register_pair("docstrings", manifest, files, report={}, verdict=None)
    with pytest.raises(IncompatibleError, match="the draft ngram has no files"):
        store.register_pair(
            "docstrings", manifest_of(target, files, "ngram"), files, report={}, verdict=None
        )
    assert store.releases("docstrings") == []


@pytest.mark.parametrize(
    "call", ["log_model_artifacts", "finalize_logged_model", "log_batch", "create_model_version"]
)
def test_a_full_disk_registers_nothing_and_the_same_call_goes_on_later(
    store: Store, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store.register_release("docstrings", target, fingerprint(target))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store.client, call, full)
        with pytest.raises(StoreError, match="registering p-.*No space left on device"):
            registered(store, target, tmp_path / "pair")
    assert store.pairs("docstrings") == []
    assert store.pair("docstrings", "candidate") is None
    pair = registered(store, target, tmp_path / "pair")
    experiment = store.client.get_run(pair.run_id).info.experiment_id
    assert (pair.version, pair.aliases) == (1, ("candidate",))
    assert len(runs_of_pairs(store, pair)) == 1
    assert len(store.client.search_logged_models([experiment])) == 2  # the target's and the pair's
    assert len(store.client.get_metric_history(pair.run_id, "train/loss")) == 3


def test_killed_after_the_version_was_made_the_rest_is_made_up_for(
    store: Store, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(upload, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            registered(store, target, tmp_path / "pair")
    (left,) = store.pairs("docstrings")
    assert left.aliases == ()
    pair = registered(store, target, tmp_path / "pair")
    assert pair == replace(left, aliases=("candidate",))
    assert store.client.get_run(pair.run_id).info.status == "FINISHED"


def test_a_version_made_by_hand_is_no_pair(store: Store, target: Path, tmp_path: Path) -> None:
    registered(store, target, tmp_path / "pair")
    store.client.create_model_version("docstrings", source=str(tmp_path), run_id="0" * 32)
    store.client.set_registered_model_alias("docstrings", "champion", "2")
    assert [pair.version for pair in store.pairs("docstrings")] == [1]
    with pytest.raises(StoreError, match="docstrings v2 is no pair"):
        store.champion("docstrings")


def test_deleted_files_are_told(store: Store, target: Path, tmp_path: Path) -> None:
    pair = registered(store, target, tmp_path / "pair")
    place = store.client.get_logged_model(pair.model_id).artifact_location
    (Path(place) / "pair.json").unlink()
    with pytest.raises(NotFoundError, match="MLflow has no pair.json for it"):
        store.manifest(pair)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 65, "a.target"])
def test_a_name_that_cannot_be_a_pairings_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="pairing: got"):
        store.pairs(name)


def test_a_server_that_is_away_is_told_within_seconds(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"http://127.0.0.1:9 does not answer"):
        Store("http://127.0.0.1:9", locks=tmp_path).pairs("docstrings")
    assert time.monotonic() - started < 10


def test_a_url_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wanted an http"):
        Store("file:///some/folder", locks=tmp_path).pairs("docstrings")


def test_a_mistyped_database_makes_nothing(tmp_path: Path, target: Path) -> None:
    for name in ("mistyped.db", "no/such/folder/mlflow.db"):
        store = Store(f"sqlite:///{tmp_path / 'registries' / name}")
        with pytest.raises(StoreError, match="where there is no database: check the path"):
            store.register_release("docstrings", target, fingerprint(target))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target"]


def test_the_lock_of_a_killed_process_goes_with_it(store: Store, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from registry.store import Store\n"
        "with Store(sys.argv[1]).writing('docstrings'):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, store.url], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGKILL)
    with store.writing("docstrings"):
        pass


def test_preparing_a_database_twice_leaves_it_alone(migrated: Path) -> None:
    before = migrated.stat().st_mtime_ns
    prepare_database(f"sqlite:///{migrated}")
    assert migrated.stat().st_mtime_ns == before


def test_what_a_killed_creation_left_is_not_played_into_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".mlflow.db.partial", ".mlflow.db.partial-journal"):
        (tmp_path / name).write_bytes(b"half")

    def create(path: Path) -> None:
        assert not list(tmp_path.glob(".mlflow.db*"))
        path.write_bytes(b"whole")

    monkeypatch.setattr("registry.schema._create", create)
    prepare_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert (tmp_path / "mlflow.db").read_bytes() == b"whole"


def test_a_database_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("registry.schema._create", full)
    with pytest.raises(StoreError, match="could not be created.*No space left"):
        prepare_database(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locks"]


def test_a_registry_from_before_tags_had_short_names_is_read_and_taken_over(
    store: Store, target: Path, tmp_path: Path
) -> None:
    registered(store, target, tmp_path / "1")
    client, version = store.client, store.client.get_model_version("docstrings", "1")
    for former, name in NAMES_BEFORE.items():
        client.set_model_version_tag("docstrings", "1", former, version.tags[name])
        client.delete_model_version_tag("docstrings", "1", name)
    for model in ("docstrings", "docstrings.target"):
        client.delete_registered_model_tag(model, OURS)
    (pair,) = store.pairs("docstrings")
    assert (pair.draft_kind, pair.passed, pair.figure("speedup")) == ("head", True, 1.52)
    second = registered(store, target, tmp_path / "2", seed=2)
    assert client.get_registered_model("docstrings").tags[OURS] == "pairing"
    assert promote(store, "docstrings", second.version, expect=None).ok
    assert promote(store, "docstrings", 1, expect=second.version).ok


@pytest.mark.parametrize("parent", ["p-1", "' OR name='", "p-000000000000000g"])
def test_a_parent_that_is_no_pairs_name_reaches_no_filter(
    store: Store, target: Path, tmp_path: Path, parent: str
) -> None:
    files = pair_files(tmp_path / "pair", "ngram")
    manifest = manifest_of(target, files, "ngram")
    odd = replace(manifest, making=replace(manifest.making, parent=parent))
    with pytest.raises(ManifestError, match="making.parent: got .*, wanted a pair_id"):
        store.register_pair("docstrings", odd, files, report={}, verdict=None)
    assert store.pairs("docstrings", having={PAIR_ID: parent}) == []
