"""How many prompts a pair is measured on: those that the policy asks for, and more, up to what the
limits allow, while the verdict is INCONCLUSIVE. What is left open then, a person decides.

Looks share one alpha, so that measuring on is no way to a PASS by luck: see evaluation/sequential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configuration.serving import Serving
from configuration.settings import Pairing, Settings
from flows.trial import Progress, run_trial
from speculation.records import Prompt

if TYPE_CHECKING:
    from evaluation.report import Report

ENOUGH_FOR_TWO = 2  # times the policy's prompts: of fewer there is one look, as the policy has it


def budget(line: Pairing, prompts: int) -> int:
    """Of so many prompts, how many a pair may be measured on."""
    most = min(prompts, line.limits.most_prompts)
    return (
        most if most >= ENOUGH_FOR_TWO * line.policy.prompts else min(prompts, line.policy.prompts)
    )


def stops_by(settings: Settings, line: Pairing) -> dict[str, Any]:
    """What a measurement follows from besides, where its verdict decides how far it goes."""
    with settings.path(line.evaluation_prompts).open(encoding="utf-8") as stored:
        asked = sum(1 for prompt in stored if prompt.strip())
    if budget(line, asked) <= line.policy.prompts:
        return {}
    return {"most_prompts": line.limits.most_prompts, "policy": asdict(line.policy)}


def served_as(serving: Serving) -> dict[str, Any]:
    """What a measurement follows from besides, where its server is not started as by default, so
    that what was finished by then stays finished."""
    names = ("max_slots", "max_context")
    told, default = ({name: getattr(of, name) for name in names} for of in (serving, Serving()))
    return {} if told == default else {"serving": told}


def measure_arms(
    target: Path,
    arms: Mapping[str, str],
    prompts: Sequence[Prompt],  # all that may judge
    out: Path,
    *,
    line: Pairing,
    serving: Serving,
    adapters: Mapping[str, Path],
    passed_over: int,
    progress: Progress,
) -> Report:
    """The report of every arm, from one look or from as many as it took. Raises as the trials do.

    It goes on from what lies in `out`.
    """
    common: dict[str, Any] = {"line": line, "serving": serving, "adapters": adapters}
    common |= {"passed_over": passed_over, "progress": progress}
    most, policy = budget(line, len(prompts)), line.policy
    if most <= policy.prompts:
        timed = policy.speed_prompts
        return run_trial(target, arms, prompts[:most], out, speed_prompts=timed, **common)
    from evaluation.sequential import LOOKS
    from flows.looking import run_until_sure

    first = max(policy.prompts, policy.minimum_prompts)
    upto = replace(policy, prompts=most)
    asked = prompts[:most]
    return run_until_sure(
        target, arms, asked, out, policy=upto, looks=LOOKS, first=first, **common
    ).report
