"""What the steps of a retrain do, one function a step, from plain values to plain values.

Introduces the folders to each other: registry, training and evaluation never meet elsewhere. Knows
nothing of Prefect and of what was done before; flows/retrain.py puts both around it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from configuration.prompts import read_prompts
from configuration.settings import Pairing, Settings
from flows.child import in_child
from flows.line import device, store
from flows.lineage import learned, write_lineage
from flows.steps import file_digest
from flows.trial import run_trial
from speculation.records import Finding, Phase, Prompt, Verdict

Progress = Callable[[int, int, str], None]
LOOK_PROMPTS = 8  # enough to see a fall; the whole measurement comes later
LOOK_TOKENS = 48


def look(
    settings: Settings, line: Pairing, pairing: str, release: str, work: Path, progress: Progress
) -> dict[str, Any]:
    """What there is to begin with: the target, the old draft and how it does here, the choice.

    Raises ValueError for a release that is unknown or whose folder changed.
    """
    from registry.compatibility import compare
    from registry.fingerprint import fingerprint

    registry = store(settings)
    found = next((r for r in registry.releases(pairing) if r.digest == release), None)
    if found is None:
        raise ValueError(f"{pairing}: no release {release[:12]} is registered: release it first")
    target = Path(found.uri)
    if (holds := fingerprint(target).digest) != release:
        raise ValueError(
            f"{target} holds release {holds[:12]}, wanted {release[:12]}: a release must not be "
            "changed in place; put it back, or release what is there now"
        )
    champion = registry.champion(pairing)
    plan: dict[str, Any] = {
        "champion": None if champion is None else champion.version,  # what this is judged against
        **{"target": str(target), "release": release, "version": found.version},
        **{"draft": None, "parent": None, "parent_draft": None, "before": None, "now": None},
    }
    if line.draft != "head":
        why = "the pairing asks for this kind"
        return {**plan, "choice": line.draft, "draft": line.draft, "why": why}
    if champion is None and line.initial_draft:
        given = str(settings.path(line.initial_draft))
        why = "the pairing brings the first release's draft"
        return {**plan, "choice": "given", "draft": given, "why": why}
    old = None
    if champion is not None and champion.draft_kind == "head":
        old = _fetched(settings, pairing, champion.version, work / "parent")
    compatible = old is not None and compare(target, old).ok
    if champion is not None and old is not None and compatible:
        plan |= {"parent": champion.pair_id, "parent_draft": str(old)}
        plan |= {"before": champion.figure("acceptance")}
        if champion.release != release:
            plan |= {"now": _look_at(settings, line, target, old, work / "look", progress)}
    return {**plan, **_chosen(line, plan, compatible)}


def answers(line: Pairing, settings: Settings, plan: dict[str, Any]) -> dict[str, Any]:
    """What the target's answers follow from."""
    prompts = file_digest(settings.path(line.train_prompts))
    return {"release": plan["release"], "prompts": prompts, "recipe": asdict(line.recipe)}


def regenerate_answers(
    settings: Settings, line: Pairing, plan: dict[str, Any], out: Path, progress: Progress
) -> dict[str, Any]:
    """Have the new target answer the training prompts.

    Raises ValueError where too few of the evaluation prompts will be left that are none of them.
    """
    from evaluation.samples import question_digest

    prompts = read_prompts(settings.path(line.train_prompts))
    asked = {question_digest(prompt) for prompt in prompts[: line.recipe.responses]}
    _judging(settings, line, asked)  # before anything takes its minutes
    spec = {"target": plan["target"], "prompts": [asdict(each) for each in prompts]}
    folder = in_child("regenerate", {**spec, **_where(line, out)}, progress)
    return {"responses": str(folder)}


def distil_draft(
    settings: Settings,
    line: Pairing,
    plan: dict[str, Any],
    responses: Path,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Train the draft, from the old one where the plan says so; what it learned from lies beside.

    A draft that is trained already is only told of again.
    """
    start = plan["parent_draft"] if plan["choice"] == "warm" else None
    spec = {"target": plan["target"], "responses": str(responses), "start": start}
    draft = in_child("distil", {**spec, **_where(line, out)}, progress)
    write_lineage(draft, responses, read_prompts(settings.path(line.train_prompts)), line.recipe)
    return {"draft": str(draft)}


def _where(line: Pairing, out: Path) -> dict[str, Any]:
    return {"out": str(out), "recipe": asdict(line.recipe), "device": device()}


def measure_pair(
    settings: Settings,
    line: Pairing,
    plan: dict[str, Any],
    draft: str,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Candidate, incumbent, n-gram and plain decoding on the same prompts, on a real server.

    What either draft learned from is passed over, and how many that were is told. Raises ValueError
    where too few prompts are left.
    """
    from evaluation.summary import rows

    arms = {"candidate": draft}
    if plan["parent_draft"] is not None and plan["choice"] != "keep":
        arms["incumbent"] = plan["parent_draft"]
    known = learned(draft) | learned(plan["parent_draft"] or "none")
    prompts, passed_over = _judging(settings, line, known)
    report = run_trial(
        Path(plan["target"]),
        {**arms, "ngram": "ngram", "none": "none"},
        prompts[: line.policy.prompts],
        out,
        line=line,
        serving=settings.serving,
        speed_prompts=line.policy.speed_prompts,
        progress=progress,
    )
    told = {"folder": str(out), "digest": report.digest, "rows": rows(report)}
    return {**told, "passed_over": passed_over}


def judge_report(line: Pairing, measured: dict[str, Any]) -> dict[str, Any]:
    """The gate's verdict, as JSON, with its sentence; the page that shows it is written beside."""
    from evaluation.gate import judge
    from evaluation.page import page
    from evaluation.plots import draw
    from evaluation.report import Report

    folder = Path(measured["folder"])
    report = Report.read(folder / "report.json")
    verdict = judge(report, line.policy)
    if over := measured.get("passed_over", 0):
        what = f"{over} evaluation prompts are among those a draft learned from and were left out"
        note = Finding("learned_prompts", Phase.PASS, what)
        verdict = Verdict.of([*verdict.findings, note])
    (folder / "report.html").write_text(page(report, verdict, draw(report, folder)), "utf-8")
    return {"verdict": asdict(verdict), "phase": verdict.phase, "sentence": verdict.sentence}


def _judging(settings: Settings, line: Pairing, known: Set[str]) -> tuple[list[Prompt], int]:
    """The evaluation prompts whose question is none of `known`, and how many are one of them.

    Raises ValueError where that leaves fewer than can judge.
    """
    from evaluation.samples import question_digest

    file = settings.path(line.evaluation_prompts)
    prompts = read_prompts(file)
    left = [prompt for prompt in prompts if question_digest(prompt) not in known]
    passed_over = len(prompts) - len(left)
    if passed_over and len(left) < line.policy.minimum_prompts:
        raise ValueError(
            f"got {file} with {len(prompts)} prompts, {passed_over} of which a draft learns from, "
            f"wanted {line.policy.minimum_prompts} at least that none does: on what it learned a "
            "draft is better than on anything else; ask other questions in one of the two files"
        )
    return left, passed_over


def _fetched(settings: Settings, pairing: str, version: int, into: Path) -> Path:
    """The champion's draft out of the registry, verified; RuntimeError where it has just gone."""
    from registry import remote

    token = settings.registry_token
    named = remote.champion(settings.registry_url, pairing, token=token)
    if named is None or named.version != version:
        raise RuntimeError(f"{pairing}: v{version} was champion and is not any more: look again")
    return remote.download(named, into, token=token) / "draft"


def _look_at(
    settings: Settings, line: Pairing, target: Path, old: Path, out: Path, progress: Progress
) -> dict[str, Any] | None:
    """The old draft's acceptance on the new target over a few prompts."""
    from evaluation.summary import summarise

    prompts = _judging(settings, line, learned(str(old)))[0][:LOOK_PROMPTS]
    arms = {"incumbent": str(old), "none": "none"}
    report = run_trial(
        target,
        arms,
        prompts,
        out,
        line=line,
        serving=settings.serving,
        speed_prompts=0,
        max_tokens=min(LOOK_TOKENS, line.measurement.max_tokens),
        progress=progress,
    )
    acceptance = summarise(report, "incumbent").acceptance
    return None if acceptance is None else asdict(acceptance)


def _chosen(line: Pairing, plan: dict[str, Any], compatible: bool) -> dict[str, Any]:
    from speculation.records import Interval
    from training.choice import choose

    now = None if plan["now"] is None else Interval(**plan["now"])
    choice = choose(
        compatible=compatible,
        before=plan["before"],
        now=now,
        margin=line.policy.acceptance_margin,
    )
    draft = plan["parent_draft"] if choice.kind == "keep" else None
    return {"choice": choice.kind, "why": choice.why, "draft": draft}
