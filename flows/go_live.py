"""A release is served before its own draft is made: with the old one, if it does well enough on the
new target to pass the gate there, or else with one that needs no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from configuration.settings import Settings
from flows import standing_in
from flows.adapters import as_input, digests_of
from flows.bounds import end_with_worker
from flows.line import configured, work_folder
from flows.retrain import evaluate, gate, register, step
from flows.rivals import rivals
from flows.steps import alone, once
from flows.telling import tell

WAIT_SECONDS = 600.0  # for a retrain that computes: a release that goes live at once has no more


@flow(name="go_live", retries=2, retry_delay_seconds=5)
def go_live(pairing: str, release: str, why: str) -> dict[str, Any]:
    """Have the release with that digest served now; `why` is kept with the pair that serves it.

    Its own draft follows by a retrain, as a swap of the draft alone. Asked again, it gives what it
    gave.
    """
    end_with_worker()
    settings, line = configured(pairing)
    work = work_folder(settings.home, pairing, release) / "live"
    kind, told = line.stand_in, why
    if line.on_release == "at_once":
        try:
            tried = trial(pairing, release, work, settings)
        except Exception as error:  # whatever it is: users do not wait for a trial that fails
            get_run_logger().exception("the trial of the old draft failed")
            told = f"{why}; the old draft was not tried: {error}"
        else:
            if tried["promoted"]:
                return _shown(settings.home, pairing, release, why, tried)
            kind, told = tried["kind"], f"{why}; {tried['statement']}"
    outcome = once(
        work,
        "stand_in",
        {"release": release, "kind": kind, **as_input(digests_of(settings, line))},
        lambda: standing_in.stand_in(settings, pairing, release, kind, told),
        lasting=lambda told: told["promoted"],
    )
    return _shown(settings.home, pairing, release, why, outcome)


def trial(pairing: str, release: str, work: Path, settings: Settings) -> dict[str, Any]:
    """The old draft measured and judged on the new target, and promoted there where it passes.

    Raises what its steps raise, and TimeoutError where a retrain computes for longer than
    WAIT_SECONDS.
    """
    line = settings.pairing(pairing)
    logger = get_run_logger()
    with alone(
        settings.home / "work" / "lock",
        lambda: logger.info("waiting: a retrain of this home computes"),
        seconds=WAIT_SECONDS,
    ):
        plan = begin(pairing, release, work)
        if plan["draft"] is None:
            return {"promoted": False, "kind": line.stand_in, "statement": plan["why"]}
        measured = evaluate(pairing, work, plan, plan["draft"])
        judged = gate(pairing, work, measured)
        if judged["phase"] != "PASS":
            kind = standing_in.better(line.stand_in, measured["rows"])
            return {"promoted": False, "kind": kind, "statement": judged["sentence"]}
        version = register(pairing, work, plan, plan["draft"], measured, judged)
        promoted = standing_in.promote(settings, pairing, plan, version["version"])
        return {"kind": line.stand_in, **promoted}


@step(hours=1)
def begin(pairing: str, release: str, work: Path) -> dict[str, Any]:
    """The old draft, where there is one whose tokens are the new target's."""
    settings, line = configured(pairing)
    return once(
        work,
        "begin",
        {
            **{"release": release, **rivals(settings, pairing, release, work, "begin")},
            **as_input(digests_of(settings, line)),
        },
        lambda: standing_in.begin(settings, line, pairing, release, work),
    )


def _shown(
    home: Path, pairing: str, release: str, why: str, outcome: dict[str, Any]
) -> dict[str, Any]:
    get_run_logger().info(outcome["statement"])
    create_markdown_artifact(f"**{pairing}**: {outcome['statement']}.", key="live")
    title = f"{pairing}: {outcome['statement']}"
    text = f"Release {release[:12]} is to be served {why}: {outcome['statement']}."
    tell(home, f"live:{pairing}:{release}:{outcome['statement']}", title, text, pairing=pairing)
    return outcome
