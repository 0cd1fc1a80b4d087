"""A person decides whether a pair goes live: the run pauses with the report in view, and goes on
when it is resumed in Prefect's pages with an answer.

A flow of its own, since only the run of a deployment can be suspended: it holds no process, no
device and no lock while it waits, for as long as that may take. Meanwhile the release does not wait
longer than its pairing allows; then it goes live with what stands in.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput

from flows.deciding import answered, question, unfit
from flows.line import configured, store
from flows.telling import tell

# Made by a call: a flow's file may be executed twice, which makes two of a class in it.
FIELDS: dict[str, Any] = {"promote": False, "reason": ""}
KINDS = {name: type(default) for name, default in FIELDS.items()}
OF = {"__module__": __name__, "__annotations__": KINDS}
Answer: Any = type("Approval", (RunInput,), {**OF, **FIELDS})


@flow(name="approve")
def approve(pairing: str, version: int, why: str, expect: int | None = None) -> dict[str, Any]:
    """Ask whether the pair `version` of `pairing` is to be champion, and do what is answered.

    Begun again from its first line when it is resumed. `expect` is the champion of the moment at
    which it was asked for, shown and no more: what counts is the one that the pair was judged
    against.
    """
    found, _ = configured(pairing)
    registry = store(found)
    asked, refused = 0, ""
    while True:
        pair = registry.pair(pairing, version)
        over = answered(registry, pairing, pair)
        if over or pair is None:
            return _shown(pairing, {"version": version, "promoted": False, "statement": over})
        text = question(found, pairing, pair, why, refused)
        create_markdown_artifact(text, key="question")
        title = f"{pairing}: a person decides about v{version}"
        key = f"asked:{pairing}:{version}:{asked}"
        tell(found.home, key, title, f"{why}. {refused}".strip(), pairing=pairing)
        try:
            answer = suspend_flow_run(wait_for_input=Answer, key=f"question-{asked}")
            refused = unfit(answer.promote, answer.reason, pair)
        except ValueError:  # pydantic's: a client that resumes a run does not look at the answer
            refused = "its fields are not what the form asks for"
        if not refused:
            break
        asked += 1
    return _shown(pairing, act(pairing, version, bool(answer.promote), str(answer.reason).strip()))


def act(pairing: str, version: int, promote: bool, reason: str) -> dict[str, Any]:
    """Do what a person decided. A pin that came meanwhile is heeded: it is the later word."""
    from flows.promote import move_champion
    from registry.expecting import expected
    from registry.leaving import leave

    found, _ = configured(pairing)
    registry = store(found)
    pair = registry.pair(pairing, version)
    assert pair is not None  # it was looked at a moment ago; nothing deletes pairs
    if not promote:
        why = reason or "a person left it as it is"
        leave(registry, pairing, version, why)
        return {"version": version, "promoted": False, "statement": f"v{version} is left: {why}"}
    force = "" if pair.passed else reason
    expect = expected(registry, pairing, version, force=force)
    return move_champion(found, pairing, version, expect=expect, force=force)


def _shown(pairing: str, outcome: dict[str, Any]) -> dict[str, Any]:
    get_run_logger().info(outcome["statement"])
    create_markdown_artifact(f"**{pairing}**: {outcome['statement']}.", key="decision")
    return outcome
