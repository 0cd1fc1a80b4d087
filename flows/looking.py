"""A trial that measures until its verdict is safe: one server, a batch of prompts at each look.

Wiring: the server is flows/trial.py's, the looks are evaluation/sequential.py's, the judge is the
gate. Every batch has a journal of its own, so that a run that is cut short goes on. Prompts are
asked in a mixed order, whatever theirs is in the file: see evaluation/looks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from configuration.serving import Serving
from configuration.settings import Pairing
from flows.trial import Progress, pair_facts, trial_server
from speculation.records import Prompt, Verdict

if TYPE_CHECKING:
    from evaluation.policy import Policy
    from evaluation.report import Report
    from evaluation.samples import Measurement
    from evaluation.sequential import Outcome
    from evaluation.spending import Looks


def run_until_sure(
    target: Path,
    arms: Mapping[str, str],  # name -> draft; "none" has to be among them
    prompts: Sequence[Prompt],  # the budget: no more than these are asked
    folder: Path,  # journals, log and report.json
    *,
    line: Pairing,
    policy: Policy,
    looks: int,
    first: int = 0,  # prompts of the first look at least; the policy's minimum where that is more
    serving: Serving | None = None,
    adapters: Mapping[str, Path] | None = None,
    passed_over: int = 0,  # prompts left out since a draft had learned from them
    seen: Callable[[Report, Verdict], None] = lambda report, verdict: None,
    progress: Progress,
) -> Outcome:
    """Measure the arms on more and more of the prompts, until the verdict is PASS or FAIL or the
    prompts are used up; write folder/report.json of all that was measured.

    Raises EndpointError when the server does not come up, MeasurementError when nothing can be
    measured of it or it changed between two looks.
    """
    from evaluation.gate import judge
    from evaluation.looks import mixed, strata_of
    from evaluation.report import report_of
    from evaluation.sequential import joined, plan_looks, slowed_between, until_sure

    tokens = prompt_tokens(target, prompts)
    prompts = mixed(prompts, tokens)
    least = max(first, policy.minimum_prompts)
    planned = plan_looks(len(prompts), minimum=least, looks=looks)
    facts = pair_facts(target, arms, prompts, passed_over=passed_over)
    parts: list[Measurement] = []
    journals: list[Path] = []
    with trial_server(
        target, arms, folder, line=line, serving=serving, adapters=adapters
    ) as measure:

        def upto(look: Looks) -> Report:
            first, last = (0, *planned)[look.number - 1], planned[look.number - 1]
            timed = speed_prompts(policy, last) - (speed_prompts(policy, first) if first else 0)
            journals.append(folder / f"journal-{first}-{last}.jsonl")
            part = measure(
                prompts[first:last],
                journals[-1],
                speed_prompts=timed,
                seed=2 * first,  # plain decoding asks twice: no two requests share a seed
                progress=progress,
            )
            parts.append(part)
            whole = joined(parts)
            for kind in slowed_between(parts):
                void(kind, journals, parts)
            met = {prompt.id for prompt in prompts[:last]}
            learned = tuple(known for known in facts.learned if known in met)
            return report_of(
                whole,
                tokenizer=line.measurement.tokenizer,
                facts=replace(facts, learned=learned),
            )

        outcome = until_sure(
            upto,
            lambda report: judge(policy, report),
            planned,
            strata=strata_of(prompts, tokens),
            seen=seen,
        )
    outcome.report.write(folder / "report.json")
    return outcome


def speed_prompts(policy: Policy, prompts: int) -> int:
    """How many of so many prompts are timed, as the policy has it for a single look at them."""
    return replace(policy, prompts=prompts).speed_prompts


def prompt_tokens(target: Path, prompts: Sequence[Prompt]) -> dict[str, int]:
    """About how many tokens each prompt has, before any is asked: its texts by the target's
    tokenizer, without what a chat template adds. Empty where there is no tokenizer to be read."""
    from registry.errors import FolderError
    from registry.tokens import tokenizer_of

    try:
        tokenizer = tokenizer_of(target)
    except FolderError:
        return {}
    return {
        prompt.id: sum(len(tokenizer.encode(m["content"]).ids) for m in prompt.messages)
        for prompt in prompts
    }


def void(kind: tuple[float, int], journals: Sequence[Path], parts: Sequence[Measurement]) -> None:
    """Whoever goes on from these journals measures their speed at that temperature and
    concurrency anew: it is not of one machine."""
    from evaluation.journal import Journal
    from evaluation.stored import Stored

    for path, part in zip(journals, parts, strict=True):
        with Journal(path, asdict(part.conditions)) as lines:
            Stored(lines).void(*kind)
