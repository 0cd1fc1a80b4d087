"""What registering writes into MLflow, in the order in which it may be interrupted.

Run, logged model, files, figures; then, in one call, the version with all its tags and its page.
What an interrupted call left is found again by its tags and used. Knows MLflow's client; holds no
lock and decides nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.adapters import adapter_set
from registry.compatibility import compare, fits_draft
from registry.environment import write_environment
from registry.errors import IncompatibleError
from registry.fingerprint import Release, fingerprint_draft
from registry.manifest import PairManifest, with_files, write_manifest
from registry.markdown import flat
from registry.schema import database_of
from registry.story import (
    LIMIT,
    PAGE_FILE,
    STANDING_LIMIT,
    Relatives,
    RunFiles,
    fitting,
    pair_story,
    release_story,
)
from registry.versions import (
    ADAPTERS,
    CANDIDATE,
    DRAFT_KIND,
    ENDED_EARLY,
    JUDGED_AGAINST,
    OF_RELEASE,
    PAIR_ID,
    PARENT,
    RELEASE,
    REPORT,
    SHOWN_METRICS,
    SIZE,
    SOURCE,
    UNJUDGED,
    URI,
    VERDICT,
    PairVersion,
    ReleaseVersion,
    target_name,
)
from speculation.records import WITHOUT_WEIGHTS, Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion

NOTE = "mlflow.note.content"  # MLflow's tag for a run's and a logged model's page
EXTERNAL = "mlflow.model.isExternal"  # MLflow's tag: the weights are not here
DATASET_DIGEST = 36  # characters that MLflow keeps of one
TAG_CHARACTERS = 500  # of a reason: MLflow keeps a few thousand, people read a line
PARAM_CHARACTERS = 500  # a recipe's value beyond it is no setting
VERDICT_FILE = "report/verdict.json"
CURVES_FILE = "training/curves.json"
CURVES = "paceline.curves"  # on a run: the run that has its draft's curves, where it is another
DATA_SHOWN = ("report.json", "verdict.json")  # of the JSON beside the pages: linked as they are
SHOWN_FOLDERS = ("report", "training")  # also put on the run, whose page shows pictures


@dataclass(frozen=True, slots=True)
class Material:
    """All that one registration is made of."""

    pairing: str
    manifest: PairManifest
    files: Path
    rows: Sequence[Mapping[str, Any]]
    verdict: Verdict | None
    why: str
    metrics: Mapping[str, float]
    release: ReleaseVersion
    relatives: Relatives
    judged_against: int | None = None  # the version that was champion then; 0: none was
    lineage: str = ""  # Markdown of the picture of all pairs
    ended_early: str = ""  # why measuring was cut short
    notes: Sequence[str] = ()  # of `check`


def check(manifest: PairManifest, files: Path) -> tuple[str, ...]:
    """`IncompatibleError` when manifest, files and target do not belong together; what else people
    are to know, and what could not be compared here."""
    kind = manifest.draft.kind
    if kind in WITHOUT_WEIGHTS:
        if (files / "draft").exists():
            raise IncompatibleError(f"{files / 'draft'}: the draft {kind} has no files; remove it")
        draft: str | Path = kind
    else:
        draft = files / "draft"
    reasons = list(fits_draft(manifest, fingerprint_draft(draft)).reasons)
    target, notes = Path(manifest.release_uri), tuple[str, ...]()
    if target.is_dir():
        answer = compare(target, draft)
        reasons, notes = [*reasons, *answer.reasons], answer.notes
    elif kind not in WITHOUT_WEIGHTS:
        notes = (
            "its tokens and shapes were not compared with the target's when it was registered: "
            f"{manifest.release_uri} is no folder of that host. Servers compare them at each load",
        )
    if reasons:
        raise IncompatibleError(f"{manifest.pair_id} cannot be registered: " + "; ".join(reasons))
    return notes


def rows_of(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The report's table, one row an arm; empty where it has none."""
    rows = report.get("rows")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def store_release(
    client: MlflowClient, url: str, pairing: str, uri: str, release: Release, source: str
) -> ModelVersion:
    """A version of the pairing's target, backed by an external model: no weights are copied.

    `source` is models:/name/version where the target is such a version of this MLflow, else empty.
    """
    experiment = experiment_of(client, url, pairing)
    tags = {EXTERNAL: "true", RELEASE: release.digest, URI: uri}
    tags |= {SOURCE: source} if source else {}
    facts = {k: v for k, v in dataclasses.asdict(release).items() if v is not None}
    model = _model(client, experiment, tags, name="target", kind="target", params=facts)
    if str(model.status) != "READY":
        with tempfile.TemporaryDirectory() as folder:
            written = json.dumps({"uri": uri, **facts}, indent=2)
            (Path(folder) / "release.json").write_text(written + "\n", encoding="utf-8")
            client.log_model_artifacts(model.model_id, folder)
        client.finalize_logged_model(model.model_id, "READY")
    return client.create_model_version(
        target_name(pairing),
        await_creation_for=0,  # it exists when the call returns
        source=_source(model, url),
        model_id=model.model_id if database_of(url) is None else None,
        tags={
            RELEASE: release.digest,
            URI: uri,
            "paceline.dtype": release.quantization or release.dtype,
            "paceline.parameters": str(release.parameters),
            **({SOURCE: source} if source else {}),
        },
        description=release_story(uri, release, source),
    )


def store_pair(client: MlflowClient, url: str, material: Material) -> int:
    """Everything of a pair, its version last; gives the version's number."""
    write_environment(material.files)
    write_verdict(material)
    manifest = with_files(material.manifest, material.files)
    write_manifest(manifest, material.files)
    experiment = experiment_of(client, url, material.pairing)
    tags = {PAIR_ID: manifest.pair_id, RELEASE: manifest.release.digest}
    tags |= {REPORT: manifest.report} if manifest.report else {}
    tags |= {PARENT: manifest.making.parent} if manifest.making.parent else {}
    tags |= {ADAPTERS: adapter_set(manifest.adapters)} if manifest.adapters else {}
    run = _run(client, experiment, tags, manifest)
    run_id = run.info.run_id
    curves = _curves_elsewhere(client, material)
    if curves:
        client.set_tag(run_id, CURVES, curves)
    model = _model(client, experiment, tags, name="pair", kind="pair", run_id=run_id)
    if str(model.status) != "READY":
        client.log_model_artifacts(model.model_id, str(material.files))
        client.finalize_logged_model(model.model_id, "READY")
    _log_run(client, run, model.model_id, material, manifest)
    parts = pair_story(
        manifest,
        why=material.why,
        verdict=material.verdict,
        rows=material.rows,
        release=material.release,
        relatives=material.relatives,
        files=RunFiles(experiment, run_id, _pictures(material.files), curves),
        notes=material.notes,
    )
    parts += [material.lineage] if material.lineage else []
    whole = f"#/experiments/{experiment}/runs/{run_id}/artifacts/{PAGE_FILE}"
    judged = (
        {} if material.judged_against is None else {JUDGED_AGAINST: str(material.judged_against)}
    )
    page = fitting(parts, LIMIT - STANDING_LIMIT, more=f"[The whole page]({whole})")
    client.log_text(run_id, "\n\n".join(parts) + "\n", PAGE_FILE)
    client.set_tag(run_id, NOTE, page)
    client.set_logged_model_tags(model.model_id, {NOTE: page})
    version = client.create_model_version(
        material.pairing,
        await_creation_for=0,
        source=_source(model, url),
        run_id=run_id,
        model_id=model.model_id,
        tags={**_shown(material, manifest), **tags, **judged},  # listed as they are given
        description=page,
    )
    return int(version.version)


def write_verdict(material: Material) -> None:
    """The verdict as data, beside the page that tells it: `Verdict.from_json` reads it."""
    if material.verdict is not None:
        path = material.files / VERDICT_FILE
        path.parent.mkdir(exist_ok=True)
        written = json.dumps(dataclasses.asdict(material.verdict), indent=2)
        path.write_text(written + "\n", encoding="utf-8")


def finish(client: MlflowClient, pair: PairVersion) -> None:
    """What may be missing from a version that exists: its run's end, its alias `candidate`."""
    if pair.run_id and client.get_run(pair.run_id).info.status == "RUNNING":
        client.set_terminated(pair.run_id)
    if pair.passed and not pair.promoted and not pair.rolled_back:
        client.set_registered_model_alias(pair.pairing, CANDIDATE, str(pair.version))


def _source(model: LoggedModel, url: str) -> str:
    """MLflow's database registry resolves models:/ through a global setting, so give it a path."""
    direct = database_of(url) is not None
    return str(model.artifact_location) if direct else f"models:/{model.model_id}"


def experiment_of(client: MlflowClient, url: str, pairing: str) -> str:
    """The id of the experiment that holds the pairing's runs and models, which is made first."""
    found = client.get_experiment_by_name(pairing)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)
    database = database_of(url)
    place = None if database is None else str(database.parent / "artifacts" / pairing)
    return str(client.create_experiment(pairing, artifact_location=place))


def _matching(tags: Mapping[str, str]) -> str:
    return " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())


def _run(
    client: MlflowClient, experiment: str, tags: Mapping[str, str], manifest: PairManifest
) -> Run:
    found = client.search_runs([experiment], _matching({PAIR_ID: manifest.pair_id}))
    for run in found:
        if run.data.tags.get(REPORT, "") == manifest.report:
            client.update_run(run.info.run_id, status="RUNNING")
            return run
    name = f"{manifest.draft.kind} {manifest.pair_id}"
    return client.create_run(experiment, tags=dict(tags), run_name=name)


def _model(
    client: MlflowClient,
    experiment: str,
    tags: Mapping[str, str],
    *,
    name: str,
    kind: str,
    params: Mapping[str, Any] | None = None,
    run_id: str | None = None,
) -> LoggedModel:
    """The logged model with these tags: a half-made one from before, or a new one."""
    key = PAIR_ID if PAIR_ID in tags else RELEASE
    for found in client.search_logged_models([experiment], _matching({key: tags[key]})):
        same_report = found.tags.get(REPORT, "") == tags.get(REPORT, "")
        if found.model_type == kind and same_report:
            return found
    written = {key: str(value) for key, value in (params or {}).items()}
    return client.create_logged_model(
        experiment, name, source_run_id=run_id, tags=dict(tags), params=written, model_type=kind
    )


def _log_run(
    client: MlflowClient, run: Run, model_id: str, material: Material, manifest: PairManifest
) -> None:
    """Everything here may be said twice: stamps are the run's, so that no point is doubled."""
    from mlflow.entities import (
        Dataset,
        DatasetInput,
        LoggedModelInput,
        LoggedModelOutput,
        Metric,
        Param,
    )

    run_id, stamp = run.info.run_id, run.info.start_time
    settings = {
        "draft_kind": manifest.draft.kind,
        "release": manifest.release.digest[:12],
        "context_measured": manifest.context_measured,
        **{f"adapter.{name}": digest for name, digest in manifest.adapters.items()},
        **{f"recipe.{key}": value for key, value in flat(manifest.making.recipe).items()},
    }
    params = [Param(key, str(value)[:PARAM_CHARACTERS]) for key, value in settings.items()]
    figures = [
        Metric(name, value, stamp, 0, model_id=model_id)
        for name, value in material.metrics.items()
        if math.isfinite(value)
    ]
    curves = [
        Metric(f"train/{name}", value, stamp, step)
        for step, name, value in _curves(material.files / CURVES_FILE)
    ]
    client.log_batch(run_id, metrics=figures, params=params)
    for start in range(0, len(curves), 500):  # MLflow takes 1,000 a call
        client.log_batch(run_id, metrics=curves[start : start + 500])
    parent = material.relatives.parent
    ids = [material.release.model_id, "" if parent is None else parent.model_id]
    models = [LoggedModelInput(model_id) for model_id in dict.fromkeys(filter(None, ids))]
    data = [
        DatasetInput(
            Dataset(name, digest[:DATASET_DIGEST], "paceline", json.dumps({"sha256": digest}))
        )
        for name, digest in (
            ("the target's answers", manifest.making.data),
            ("report", manifest.report),
        )
        if digest
    ]
    if models or data:
        client.log_inputs(run_id, models=models, datasets=data)
    told = run.outputs.model_outputs if run.outputs else []
    if model_id not in {output.model_id for output in told}:  # a second time would be refused
        client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])
    for folder in SHOWN_FOLDERS:
        if (material.files / folder).is_dir():
            client.log_artifacts(run_id, str(material.files / folder), folder)


def _curves_elsewhere(client: MlflowClient, material: Material) -> str:
    """The run that has the curves of a draft without its own: that of the pair which it was kept
    from, or which that one was kept from. Empty where nobody has any."""
    parent, kind = material.relatives.parent, material.manifest.draft.kind
    if kind in WITHOUT_WEIGHTS or (material.files / CURVES_FILE).is_file():
        return ""
    if parent is None or not parent.run_id:
        return ""
    told = client.get_run(parent.run_id).data
    if any(name.startswith("train/") for name in told.metrics):
        return parent.run_id
    return str(told.tags.get(CURVES, ""))


def _curves(path: Path) -> Iterator[tuple[int, str, float]]:
    """Step, name and value of every number in a list of records, one an epoch or step."""
    if not path.is_file():
        return
    records = json.loads(path.read_text(encoding="utf-8"))
    for number, record in enumerate(records if isinstance(records, list) else []):
        step = record.get("step", record.get("epoch", number))
        for name, value in record.items():
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if plain and name not in ("step", "epoch") and math.isfinite(value):
                yield int(step), name, float(value)


def _pictures(files: Path) -> tuple[str, ...]:
    return tuple(
        path.relative_to(files).as_posix()
        for folder in SHOWN_FOLDERS
        for path in sorted((files / folder).glob("*"))
        if path.suffix in (".html", ".md", ".png") or path.name in DATA_SHOWN
    )


def _shown(material: Material, manifest: PairManifest) -> dict[str, str]:
    """The tags that make the list of versions useful on its own."""
    size = sum(path.stat().st_size for path in (material.files / "draft").rglob("*"))
    tags = {VERDICT: str(material.verdict.phase) if material.verdict else UNJUDGED}
    for name, tag in SHOWN_METRICS.items():
        value = material.metrics.get(name)
        if value is not None and math.isfinite(value):
            tags[tag] = f"{value:.4g}"
    of_release = f"{material.release.version} {manifest.release.digest[:8]}"
    tags |= {DRAFT_KIND: manifest.draft.kind, OF_RELEASE: of_release}
    if material.ended_early:
        tags[ENDED_EARLY] = material.ended_early[:TAG_CHARACTERS]
    return tags | {SIZE: f"{size / 1e6:.1f} MB"}
