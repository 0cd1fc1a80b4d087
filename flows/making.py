"""What the steps of a retrain do, one function a step, from plain values to plain values.

Introduces the folders to each other: registry, training and evaluation never meet elsewhere. Knows
nothing of Prefect and of what was done before; flows/retrain.py puts both around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configuration.prompts import read_pairing_prompts
from configuration.settings import Pairing, Settings
from flows.adapters import adapters_of, as_input, check_fit, digests_of
from flows.child import in_child
from flows.line import device, store
from flows.lineage import learned, write_lineage
from flows.measuring import measure_arms
from flows.steps import file_digest
from flows.traffic import taught
from flows.trial import complete, run_trial
from speculation.records import Prompt

if TYPE_CHECKING:
    from registry.store import PairVersion
    from training.choice import Cause

Progress = Callable[[int, int, str], None]
LOOK_PROMPTS = 8  # enough to see a fall; the whole measurement comes later
LOOK_TOKENS = 48


def look(
    settings: Settings,
    line: Pairing,
    pairing: str,
    release: str,
    work: Path,
    progress: Progress,
    *,
    cause: Cause = "release",
    failed: int = 0,
) -> dict[str, Any]:
    """What there is to begin with: the target, the old draft and how it does here, the choice.

    Raises as `begin` does, and ConfigurationError for evaluation prompts that cannot be asked.
    """
    from registry.adapters import adapter_set
    from registry.compatibility import compare

    _judging_prompts(settings, line)  # before anything takes its hours
    plan = begin(settings, pairing, release)
    if line.draft != "head":
        why = "the pairing asks for this kind"
        return {**plan, "choice": line.draft, "draft": line.draft, "why": why}
    pairs = store(settings).pairs(pairing)
    parent = last_with_weights(pairs, plan["champion"])
    if line.initial_draft and not any(pair.promoted and not pair.stands_in for pair in pairs):
        given = str(settings.path(line.initial_draft))
        why = "the pairing brings the first release's draft"
        return {**plan, "choice": "given", "draft": given, "why": why}
    old = None if parent is None else fetched(settings, parent, work / "parent")
    compatible = old is not None and compare(Path(plan["target"]), old).ok
    if parent is not None and old is not None and compatible:
        plan |= {"parent": parent.pair_id, "parent_draft": str(old)}
        # What stands in passed on this release, and how much it lost on it is not known by that.
        whole = last_with_weights([p for p in pairs if not p.stands_in], plan["champion"])
        plan |= {"before": None if whole is None else whole.figure("acceptance")}
        others = parent.adapters != adapter_set(plan["adapters"])
        if others or parent.release != release or parent.stands_in:
            target = Path(plan["target"])
            plan |= {"now": _look_at(settings, line, target, old, work / "look", progress)}
    return {**plan, **_chosen(line, plan, compatible, cause, failed)}


def decidable(line: Pairing, settings: Settings) -> list[str]:
    """What the coming measurement will be able to decide, as `paceline evaluate --plan` says it,
    and what of the evaluation prompts it leaves out."""
    from evaluation.plan import plan
    from evaluation.samples import asked_once

    tokens = line.measurement.max_tokens
    prompts = _judging_prompts(settings, line)
    asked = len(asked_once(prompts))
    policy = replace(line.policy, prompts=min(asked, line.policy.prompts))
    told = plan(policy, draft_len=line.draft_len, answer_tokens=tokens).sentences
    repeats = len(prompts) - asked
    left_out = f"{repeats} of {len(prompts)} evaluation prompts ask what another asks: left out"
    return [left_out, *told] if repeats else list(told)


def begin(settings: Settings, pairing: str, release: str) -> dict[str, Any]:
    """The release as it is registered and lies there, and the champion; nothing chosen yet.

    Raises ValueError for a release that is unknown or whose folder changed, and for adapters of the
    pairing that do not fit it.
    """
    from registry.cache import DigestCache
    from registry.fingerprint import fingerprint

    registry = store(settings)
    found = next((r for r in registry.releases(pairing) if r.digest == release), None)
    if found is None:
        raise ValueError(f"{pairing}: no release {release[:12]} is registered: release it first")
    target = Path(found.uri)
    # Looked at again only: whoever registers the pair reads every byte of it.
    known = DigestCache(settings.home / "cache" / "digests.json")
    if (holds := fingerprint(target, cache=known).digest) != release:
        raise ValueError(
            f"{target} holds release {holds[:12]}, wanted {release[:12]}: a release must not be "
            "changed in place; put it back, or release what is there now"
        )
    line = settings.pairings.get(pairing, Pairing())
    check_fit(settings, line, target)
    champion = registry.champion(pairing)
    return {
        "adapters": digests_of(settings, line),
        "champion": None if champion is None else champion.version,  # what this is judged against
        **{"target": str(target), "release": release, "version": found.version},
        **{"draft": None, "parent": None, "parent_draft": None, "before": None, "now": None},
    }


def last_with_weights(pairs: Sequence[PairVersion], champion: int | None) -> PairVersion | None:
    """The pair whose draft the next one starts from: the champion's, or, where that is a draft
    without weights, of those that were champion the last that was not taken out of service."""
    served = [
        pair
        for pair in pairs
        if pair.draft_kind == "head"
        and (pair.version == champion or (pair.promoted and not pair.rolled_back))
    ]
    return max(served, key=lambda pair: (pair.version == champion, pair.promoted), default=None)


def answers(line: Pairing, settings: Settings, plan: dict[str, Any]) -> dict[str, Any]:
    """What the target's answers follow from."""
    prompts = file_digest(settings.path(line.train_prompts))
    told = {"release": plan["release"], "prompts": prompts, "recipe": asdict(line.recipe)}
    learned_too = plan.get("traffic") or {"digest": ""}
    told |= {"traffic": learned_too["digest"]} if learned_too["digest"] else {}
    return {**told, **as_input(plan.get("adapters"))}


def regenerate_answers(
    settings: Settings, line: Pairing, plan: dict[str, Any], out: Path, progress: Progress
) -> dict[str, Any]:
    """Have the new target answer the training prompts, each with the adapter that it asks for.

    Raises ValueError where too few of the evaluation prompts will be left that are none of them.
    """
    from evaluation.samples import question_digest

    prompts = _teaching_prompts(settings, line, plan)
    asked = {question_digest(prompt) for prompt in prompts[: line.recipe.responses]}
    _judging(settings, line, asked)  # before anything takes its minutes
    spec = {"target": plan["target"], "prompts": [asdict(each) for each in prompts]}
    spec |= {"adapters": {name: str(at) for name, at in adapters_of(settings, line).items()}}
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
    """Train the draft, from the old one where the plan says so; what it learned from lies beside,
    and its target's tokens in it.

    A draft that is trained already is only told of again.
    """
    from registry.tokens import keep_tokens

    start = plan["parent_draft"] if plan["choice"] == "warm" else None
    spec = {"target": plan["target"], "responses": str(responses), "start": start}
    draft = in_child("distil", {**spec, **_where(line, out)}, progress)
    keep_tokens(Path(plan["target"]), draft)
    write_lineage(draft, responses, _teaching_prompts(settings, line, plan), line.recipe)
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

    What either draft learned from is passed over, and how many that were is told. Where measuring
    was cut short `incomplete` says why, and asked again it goes on from there. Raises ValueError
    where too few prompts are left, and MeasurementError where nothing could be measured.
    """
    from evaluation.summary import rows

    arms = {"candidate": draft}
    if plan["parent_draft"] is not None and plan["choice"] != "keep":
        arms["incumbent"] = plan["parent_draft"]
    taught = [learned(each) or frozenset() for each in (draft, plan["parent_draft"] or "none")]
    known = frozenset[str]().union(*taught)
    prompts, passed_over = _judging(settings, line, known)
    report = measure_arms(
        Path(plan["target"]),
        {**arms, "ngram": "ngram", "none": "none"},
        prompts,
        out,
        line=line,
        serving=settings.serving,
        adapters=adapters_of(settings, line),
        passed_over=passed_over,
        progress=progress,
    )
    told = {"folder": str(out), "digest": report.digest, "rows": rows(report)}
    return {**told, "passed_over": passed_over, "incomplete": report.incomplete}


def judge_report(line: Pairing, measured: dict[str, Any]) -> dict[str, Any]:
    """The gate's verdict, as JSON, with its sentence and its page as Markdown; the page with its
    pictures is written beside the report."""
    from evaluation.gate import judge
    from evaluation.markdown import markdown
    from evaluation.page import write
    from evaluation.report import Report

    folder = Path(measured["folder"])
    report = Report.read(folder / "report.json")
    verdict = judge(line.policy, report)
    write(report, verdict, folder)
    told = {"phase": verdict.phase, "sentence": verdict.sentence}
    return {**told, "verdict": asdict(verdict), "page": markdown(report, verdict)}


def _teaching_prompts(settings: Settings, line: Pairing, plan: dict[str, Any]) -> list[Prompt]:
    configured = read_pairing_prompts(settings.path(line.train_prompts), line.adapters)
    return taught(configured, plan.get("traffic"))


def _judging_prompts(settings: Settings, line: Pairing) -> list[Prompt]:
    return read_pairing_prompts(settings.path(line.evaluation_prompts), line.adapters)


def _judging(settings: Settings, line: Pairing, known: Set[str]) -> tuple[list[Prompt], int]:
    """The evaluation prompts whose question is none of `known`, and how many are one of them.

    Raises ValueError where that leaves fewer than can judge.
    """
    from evaluation.samples import asked_once, is_known

    file = settings.path(line.evaluation_prompts)
    prompts = asked_once(read_pairing_prompts(file, line.adapters))
    left = [prompt for prompt in prompts if not is_known(prompt, known)]
    passed_over = len(prompts) - len(left)
    if passed_over and len(left) < line.policy.minimum_prompts:
        raise ValueError(
            f"got {file} with {len(prompts)} prompts, {passed_over} of which a draft learns from, "
            f"wanted {line.policy.minimum_prompts} at least that none does: on what it learned a "
            "draft is better than on anything else; ask other questions in one of the two files"
        )
    return left, passed_over


def fetched(settings: Settings, pair: PairVersion, into: Path) -> Path:
    """The pair's draft out of the registry, verified."""
    from registry import remote

    named = remote.known(settings.registry_url, pair)
    return remote.download(named, into, token=settings.registry_token) / "draft"


def _look_at(
    settings: Settings, line: Pairing, target: Path, old: Path, out: Path, progress: Progress
) -> dict[str, Any] | None:
    """The old draft's acceptance on the new target over a few prompts."""
    from evaluation.summary import summarise

    prompts = _judging(settings, line, learned(str(old)) or frozenset())[0]
    prompts = _of_each_adapter(prompts)[:LOOK_PROMPTS]
    arms = {"incumbent": str(old), "none": "none"}
    report = complete(
        run_trial(
            target,
            arms,
            prompts,
            out,
            line=line,
            serving=settings.serving,
            adapters=adapters_of(settings, line),
            speed_prompts=0,
            max_tokens=min(LOOK_TOKENS, line.measurement.max_tokens),
            progress=progress,
        )
    )
    acceptance = summarise(report, "incumbent").acceptance
    return None if acceptance is None else asdict(acceptance)


def _of_each_adapter(prompts: Sequence[Prompt]) -> list[Prompt]:
    """In turn one of each adapter, and of the target without any, as far as they go."""
    seen = Counter[str | None]()
    turns = []
    for prompt in prompts:
        turns.append(seen[prompt.adapter])
        seen[prompt.adapter] += 1
    return [prompts[place] for place in sorted(range(len(prompts)), key=turns.__getitem__)]


def _chosen(
    line: Pairing, plan: dict[str, Any], compatible: bool, cause: Cause, failed: int
) -> dict[str, Any]:
    from speculation.records import Interval
    from training.choice import choose

    now = None if plan["now"] is None else Interval(**plan["now"])
    choice = choose(
        compatible=compatible,
        before=plan["before"],
        now=now,
        margin=line.policy.acceptance_margin,
        cause=cause,
        failed=failed,
    )
    draft = plan["parent_draft"] if choice.kind == "keep" else None
    return {"choice": choice.kind, "why": choice.why, "draft": draft}
