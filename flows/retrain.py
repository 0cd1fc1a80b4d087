"""From a release to a judged, registered pair: look, regenerate, distil, measure, judge, register,
promote. Wiring: the order of the steps, what is retried, what is shown, and the marker that makes a
finished step stay finished when everything is killed. Inside regeneration, distillation and the
measurement their own checkpoints do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from prefect import Task, flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.runtime import task_run

from configuration.settings import Settings
from flows import keeping, making
from flows.accounts import accounted
from flows.adapters import as_input, digests_of
from flows.basis import basis
from flows.bounds import end_with_worker
from flows.ledger import entries
from flows.line import configured, work_folder
from flows.measuring import served_as, stops_by
from flows.pictures import curves_picture, show_picture, show_pictures
from flows.progress import reporting
from flows.restraint import refused
from flows.rivals import rivals
from flows.space import check_room
from flows.steps import alone, digest, file_digest, finished, once
from flows.superseded import SUPERSEDED, superseded
from flows.superseded import outcome as ended
from flows.telling import tell
from flows.traffic import forget, gather

if TYPE_CHECKING:
    from training.choice import Cause

P = ParamSpec("P")
R = TypeVar("R")
UNTAUGHT = "UNTAUGHT"  # an outcome's phase: there was nothing new to learn from
RETRIES = 2  # of a step, within one run


def may_pass(task: Any, run: Any, state: Any) -> bool:
    """Whether trying again can help: not where the caller has to change something."""
    return not isinstance(state.result(raise_on_failure=False), ValueError)


def step(*, hours: float) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task that is tried three times, and ended after `hours`."""
    return task(
        retries=RETRIES,
        retry_delay_seconds=[2.0, 10.0],
        retry_condition_fn=may_pass,
        timeout_seconds=hours * 3600,
    )


@flow(name="retrain")
def retrain(
    pairing: str, release: str, cause: str = "release", by_hand: bool = False
) -> dict[str, Any]:
    """Make, judge and register the pair of `pairing` for the release with that digest.

    `cause` is "release" or the id of an alarm. Asked again, it gives what it gave. It ends where a
    newer release came, unless it is a person who wants it.
    """
    end_with_worker()
    logger = get_run_logger()
    settings, _ = configured(pairing)

    work = work_folder(settings.home, pairing, release, cause)
    with (
        alone(
            settings.home / "work" / "lock",
            lambda: logger.info("waiting: another retrain of this home computes"),
        ),
        accounted(settings.home, pairing, release, cause) as account,
    ):
        based = basis(settings, settings.pairing(pairing))
        outcome = made(settings, pairing, release, work, cause, by_hand)
        if outcome["version"] is not None:
            account["basis"] = based
        account |= {name: outcome[name] for name in ("phase", "promoted", "version")}
    logger.info(outcome["statement"])
    why = "" if cause == "release" else f", because of {cause}"
    tell(
        settings.home,
        f"retrain:{pairing}:{release}:{cause}:{outcome['statement']}",
        f"{pairing}: {outcome['statement']}",
        f"A retrain for release {release[:12]}{why} has ended: {outcome['statement']}.",
        pairing=pairing,
    )
    return outcome


def made(
    settings: Settings, pairing: str, release: str, work: Path, cause: str, by_hand: bool
) -> dict[str, Any]:
    """The steps, one after the other."""

    def overtaken(plan: dict[str, Any]) -> str:
        return "" if by_hand else superseded(settings, pairing, plan)

    plan = look(pairing, release, work, cause)
    draft = plan["draft"]
    if draft is None:
        if why := overtaken(plan):
            return left(pairing, why)
        if finished(work, "regenerate") is None:  # what is made already takes no more
            enough_room(settings, pairing, plan)
        if kind_of(cause) != "release":
            plan = {**plan, "traffic": traffic(pairing, work, plan, cause)}
            if why := plan["traffic"]["refused"]:
                return left(pairing, why, UNTAUGHT)
        answers = regenerate(pairing, work, plan)
        if why := overtaken(plan):
            return left(pairing, why)
        draft = distil(pairing, work, plan, answers)["draft"]
    if why := overtaken(plan):
        return left(pairing, why)
    measured = evaluate(pairing, work, plan, draft)
    judged = gate(pairing, work, measured)
    version = register(pairing, work, plan, draft, measured, judged)
    return settle(pairing, work, plan, version["version"], judged["phase"], measured)


@step(hours=1)
def look(pairing: str, release: str, work: Path, cause: str) -> dict[str, Any]:
    """The old draft on the new target, and what to make of it."""
    settings, line = configured(pairing)
    report = reporting(work, "look")
    kind = kind_of(cause)
    others = [e for e in entries(settings.home) if e["pairing"] == pairing and _not_by(e, cause)]
    failed = refused(others, release) if kind != "release" else 0
    plan = once(
        work,
        "look",
        {
            **{"release": release, "initial_draft": line.initial_draft, "draft": line.draft},
            **rivals(settings, pairing, release, work, "look"),
            **({"failed": failed} if failed else {}),
            **served_as(settings.serving),
            **as_input(digests_of(settings, line)),
        },
        lambda: making.look(
            settings, line, pairing, release, work, report, cause=kind, failed=failed
        ),
    )
    create_markdown_artifact(
        f"**{pairing}**, release {plan['version']} (`{release[:12]}`): **{plan['choice']}**, "
        f"because {plan['why']}.\n\n"
        + "\n".join(f"- {sentence}" for sentence in making.decidable(line, settings)),
        key="plan",
    )
    return plan


@step(hours=1)
def traffic(pairing: str, work: Path, plan: dict[str, Any], cause: str) -> dict[str, Any]:
    """What users asked since requests changed, for the draft to learn from."""
    settings, line = configured(pairing)
    report = reporting(work, "traffic")
    found = once(
        work,
        "traffic",
        {"release": plan["release"], "cause": cause},
        lambda: gather(settings, line, plan, cause, work, report),
        lasting=lambda told: not told["refused"],
    )
    get_run_logger().info("traffic: %s", found["told"])
    return found


@step(hours=24)
def regenerate(pairing: str, work: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """The new target's own answers to the training prompts."""
    settings, line = configured(pairing)
    inputs = making.answers(line, settings, plan)
    out = work / f"responses-{digest(inputs)[:8]}"
    report = reporting(work, "regenerate")
    made = once(
        work,
        "regenerate",
        inputs,
        lambda: making.regenerate_answers(settings, line, plan, out, report),
    )
    return {**made, "data": digest(inputs)}


@step(hours=24)
def distil(
    pairing: str, work: Path, plan: dict[str, Any], answers: dict[str, Any]
) -> dict[str, Any]:
    """The new draft."""
    settings, line = configured(pairing)
    inputs = {"data": answers["data"], "choice": plan["choice"], "parent": plan["parent"]}
    out = work / f"distilled-{digest(inputs)[:8]}"
    report = reporting(work, "distil")
    made = once(
        work,
        "distil",
        inputs,
        lambda: making.distil_draft(settings, line, plan, Path(answers["responses"]), out, report),
    )
    show_picture(curves_picture(out), key="training", description="Loss and acceptance by epoch.")
    return made


@step(hours=24)
def evaluate(pairing: str, work: Path, plan: dict[str, Any], draft: str) -> dict[str, Any]:
    """Candidate, incumbent, n-gram and plain decoding on a real trial server.

    A measurement that is cut short is tried again, and goes on from where it was; one that is cut
    short each time is judged as it is: INCONCLUSIVE, with its reason. Nothing of that is marked as
    finished, so that a later run measures on.
    """
    from evaluation.client import MeasurementError

    settings, line = configured(pairing)
    inputs = {
        **{"release": plan["release"], "draft": draft, "parent": plan["parent"]},
        **{"prompts": file_digest(settings.path(line.evaluation_prompts))},
        **{"measurement": asdict(line.measurement), "draft_len": line.draft_len},
        **{"count": line.policy.prompts, "speed": line.policy.speed_prompts},
        **stops_by(settings, line),
        **served_as(settings.serving),
        **as_input(plan.get("adapters")),
    }
    out = work / f"trial-{digest(inputs)[:8]}"
    report = reporting(work, "evaluate")
    measured = once(
        work,
        "evaluate",
        inputs,
        lambda: making.measure_pair(settings, line, plan, draft, out, report),
        lasting=whole,
    )
    if not whole(measured) and task_run.run_count <= RETRIES:
        raise MeasurementError(f"measuring ended early: {measured['incomplete']}")
    rows = [keeping.named(row) for row in measured["rows"]]
    create_table_artifact(rows, key="measured", description=f"{pairing}: every arm, same prompts.")
    return measured


@step(hours=1)
def gate(pairing: str, work: Path, measured: dict[str, Any]) -> dict[str, Any]:
    """The verdict of the pairing's policy."""
    _, line = configured(pairing)
    judged = once(
        work,
        "gate",
        {"report": measured["digest"], "policy": asdict(line.policy)},
        lambda: making.judge_report(line, measured),
        lasting=lambda _: whole(measured),
    )
    pictures = show_pictures(Path(measured["folder"]), prefix="measured")
    create_markdown_artifact(judged["page"] + pictures, key="verdict")
    return judged


@step(hours=1)
def register(
    pairing: str,
    work: Path,
    plan: dict[str, Any],
    draft: str,
    measured: dict[str, Any],
    judged: dict[str, Any],
) -> dict[str, Any]:
    """The pair as a version in the registry."""
    settings, _ = configured(pairing)

    def do() -> dict[str, Any]:
        files = keeping.assemble(draft, measured, work / "pair")
        return keeping.register(settings, pairing, plan, draft, measured, judged, files)

    inputs = {"report": measured["digest"], "phase": judged["phase"]}
    version = once(work, "register", inputs, do, lasting=lambda _: whole(measured))
    if whole(measured):
        forget(work)  # what users asked: hashes of it are in the pair's manifest
    return version


@step(hours=1)
def settle(
    pairing: str,
    work: Path,
    plan: dict[str, Any],
    version: int,
    phase: str,
    measured: dict[str, Any],
) -> dict[str, Any]:
    """Promoted, or left as it is with the reason.

    That a pair which passed is left follows from how things are just then: it is not marked.
    """
    settings, _ = configured(pairing)
    outcome = once(
        work,
        "settle",
        {"version": version},
        lambda: keeping.settle(settings, pairing, plan, version, phase),
        lasting=lambda told: whole(measured) and (told["promoted"] or phase != "PASS"),
    )
    if not whole(measured):
        ended = f"{outcome['statement']}, since measuring ended early: {measured['incomplete']}"
        outcome = {**outcome, "statement": ended}
    create_markdown_artifact(f"**{pairing}**: {outcome['statement']}.", key="outcome")
    return outcome


def left(pairing: str, why: str, phase: str = SUPERSEDED) -> dict[str, Any]:
    """The end of a retrain that makes nothing."""
    get_run_logger().info(why)
    create_markdown_artifact(f"**{pairing}**: {why}.", key="outcome")
    return ended(why, phase)


def enough_room(settings: Settings, pairing: str, plan: Mapping[str, Any]) -> None:
    """OSError where the disk has too little for the steps to come; people are told once."""
    try:
        check_room(settings.home, Path(plan["target"]))
    except OSError as error:
        key = f"room:{pairing}:{plan['release']}"
        title = f"{pairing}: a retrain waits for room on the disk"
        tell(settings.home, key, title, f"{error.strerror}.", pairing=pairing)
        raise


def _not_by(entry: Mapping[str, Any], cause: str) -> bool:
    return bool(entry.get("cause") != cause)


def kind_of(cause: str) -> Cause:
    """What a cause is: "release", the clock's, or else the id of an alarm."""
    if cause == "release":
        return "release"
    return "refresh" if cause.startswith("refresh-") else "alarm"


def whole(measured: Mapping[str, Any]) -> bool:
    """Whether all was measured, as far as the step that did it says."""
    return measured.get("incomplete") is None
