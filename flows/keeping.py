"""How a judged pair is put together and kept: its folder, its manifest, its version, its alias.

Plain values in and out; knows nothing of Prefect.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from configuration.settings import Settings
from flows.adapters import bound
from flows.line import store
from flows.lineage import read_lineage, training_files
from speculation.records import WITHOUT_WEIGHTS, Verdict

FIGURES = (  # of a report's rows: what MLflow draws and lists, under the names of the registry
    ("alpha_hat", "acceptance"),
    *((name, name) for name in ("acceptance_length", "forwards_per_request", "speedup")),
    *((name, name) for name in ("tokens_per_second", "plain_tokens_per_second")),
    *((name, name) for name in ("rouge_l", "exact_match")),
)


def assemble(draft: str, measured: Mapping[str, Any], out: Path) -> Path:
    """The pair's folder as the registry takes it, made anew: draft/, report/, training/."""
    from evaluation.report import Report

    shutil.rmtree(out, ignore_errors=True)
    (out / "report").mkdir(parents=True)
    if draft not in WITHOUT_WEIGHTS:
        shutil.copytree(draft, out / "draft")
    for path in training_files(draft):
        (out / "training").mkdir(exist_ok=True)
        shutil.copy2(path, out / "training")
    for path in Path(measured["folder"]).iterdir():
        if path.suffix in (".html", ".md", ".png"):
            shutil.copy2(path, out / "report")
    Report.read(Path(measured["folder"]) / "report.json").write(out / "report" / "report.json")
    return out


def register(
    settings: Settings,
    pairing: str,
    plan: Mapping[str, Any],
    draft: str,
    measured: Mapping[str, Any],
    judged: Mapping[str, Any],
    files: Path,
) -> dict[str, Any]:
    """The pair as a version of the pairing. The same pair with the same report is one version.

    Raises ValueError where the target's folder is not what was measured any more: a pair is bound
    to the release, and to the adapters, that its figures are of, and to no others.
    """
    from evaluation.capping import behind, longest, up_to
    from evaluation.policy import Policy
    from evaluation.report import Report
    from registry.fingerprint import fingerprint, fingerprint_draft
    from registry.manifest import PairManifest

    report = Report.read(files / "report" / "report.json")
    made = read_lineage(draft)
    verdict = Verdict.from_json(judged["verdict"])
    release = fingerprint(Path(plan["target"]))
    known = {"the retrain is of": plan["release"], "the report is of": report.conditions.release}
    for what, digest in known.items():
        if digest != release.digest:
            raise ValueError(
                f"{plan['target']} holds release {release.digest[:12]}, {what} {digest[:12]}: a "
                "release must not be changed in place; put it back, or release what is there now"
            )
    adapters, places = bound(settings, pairing, plan)
    context = verdict.context_measured
    if context is None:  # no length was judged good; a person may serve it, as far as it was met
        limits = asdict(Policy()) if verdict.basis is None else verdict.basis.limits
        most = behind(report, alone=limits["slice_minimum"], least=limits["minimum_prompts"])
        context = longest(up_to(report, most)) or 0
    manifest = PairManifest(
        release=release,
        release_uri=plan["target"],
        draft=fingerprint_draft(draft if draft in WITHOUT_WEIGHTS else files / "draft"),
        context_measured=context,
        making=replace(
            made, parent=plan["parent"], code_version=made.code_version or code_version()
        ),
        engine="builtin",
        engine_version=code_version(),
        report=report.digest,
        adapters=adapters,
        adapter_uris=places,
    )
    by_arm = {row["arm"]: row for row in measured["rows"]}
    metrics = _figures(by_arm["candidate"], "")
    for arm in ("incumbent", "ngram"):
        if arm in by_arm:
            metrics |= _figures(by_arm[arm], f"{arm}/")
    version = store(settings).register_pair(
        pairing,
        manifest,
        files,
        report={**report.as_json(), "rows": [named(row) for row in measured["rows"]]},
        verdict=verdict,
        description=f"Made because of release {plan['version']}; {plan['why']}.",
        metrics=metrics,
        judged_against=plan["champion"] or 0,
    )
    return {"version": version.version, "pair_id": version.pair_id, "run_id": version.run_id}


def named(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a report's table as people read it: the arm and its pair in one column."""
    rest = {key: value for key, value in row.items() if key not in ("arm", "pair")}
    return {"pair": f"{row['arm']} {row['pair']}", **rest}


def settle(
    settings: Settings, pairing: str, plan: Mapping[str, Any], version: int, phase: str
) -> dict[str, Any]:
    """Promote what passed, unless a newer release or another champion came meanwhile, or users are
    to stay on another release."""
    from flows.promote import move_champion
    from registry.expecting import against
    from registry.pinning import said

    base = {"version": version, "phase": phase, "promoted": False}
    if phase != "PASS":
        return {**base, "statement": f"pair {version} is not promoted: the gate says {phase}"}
    newest = max(store(settings).releases(pairing), key=lambda release: release.version)
    pinned = store(settings).pinned(pairing)
    # By digest: two hosts that announce one release at once may have given it two numbers.
    if (pinned or newest).digest != plan["release"]:
        why = f"release {newest.version} came meanwhile and supersedes release {plan['version']}"
        why = f"users stay on {said(pinned)}" if pinned else why
        return {**base, "statement": f"pair {version} is left as a candidate: {why}"}
    if settings.pairing(pairing).limits.approval == "person":
        said_so = f"pair {version} passed, and a person decides (approval)"
        return {**base, "statement": said_so}
    champion = store(settings).champion(pairing)
    expect = against(champion, plan["release"], plan["champion"])
    return {**base, **move_champion(settings, pairing, version, expect=expect)}


def _figures(row: Mapping[str, Any], prefix: str) -> dict[str, float]:
    return {
        prefix + name: float(row[column]) for column, name in FIGURES if row.get(column) is not None
    }


def code_version() -> str:
    """Of what makes and measures drafts: Paceline's own."""
    try:
        return metadata.version("paceline")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"
