"""Measures the arms of one running trial server on the same prompts.

Acceptance and texts at one fixed K, speed under the serving policy (work.py says what is asked in
which order). An endpoint that fails is asked again; one that goes on failing, changes its pair or
slows down ends the measurement, which then says why and keeps what it has. Every answer is on disk
before it counts, so that a killed measurement goes on. Knows endpoints and samples; knows nothing
of intervals or limits.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from evaluation.asking import CONSECUTIVE_ERRORS, Asking
from evaluation.client import Answer, Client, MeasurementError
from evaluation.journal import Journal
from evaluation.running import Progress, Run
from evaluation.samples import (
    SPEED,
    Conditions,
    Measurement,
    prompts_digest,
    question_digest,
)
from evaluation.started_with import started_with
from evaluation.stored import Stored
from evaluation.version import code_version
from evaluation.work import BLOCK_PROMPTS, PLAIN, Work, acceptance, speed
from speculation.records import Prompt

ARMS = ("candidate", "incumbent", "ngram", "none")  # none: plain decoding, always measured
WARM_UP_TOKENS = 8


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody watches."""


def unheard(said: str) -> None:
    """What nobody is told."""


def measure(
    url: str,
    prompts: Sequence[Prompt],
    *,
    arms: Sequence[str] = ARMS,
    draft_len: int,
    max_tokens: int,
    journal: Path,
    speed_draft_len: int | None = None,  # None: the serving policy, K as the server adapts it
    temperatures: Sequence[float] = (0.0,),
    seed: int = 0,  # the first of those that plain decoding is asked with
    concurrency: int = 8,
    speed_prompts: int = 16,
    speed_concurrencies: Sequence[int] = (1,),
    timed: Sequence[str] | None = None,  # arms whose speed is measured; None: all of them
    progress: Progress = quiet,
    notice: Callable[[str], object] = unheard,  # told where what is stored is of no use
    timeout_seconds: float = 330.0,  # of one request: a server of ours says itself that it was late
    consecutive_errors: int = CONSECUTIVE_ERRORS,
    key: str | None = None,  # where the server wants one
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] | None = None,
) -> Measurement:
    """Measure `arms` of the trial server at `url`. Goes on where the journal ends.

    Raises ValueError for arms or prompts that cannot be measured, JournalError for a damaged
    journal, and MeasurementError where nothing could be measured at all. An endpoint that dies,
    hangs, refuses, changes its pair, lies or slows down later gives an `incomplete` measurement.
    """
    _check(prompts, arms, temperatures, speed_concurrencies)
    count = min(speed_prompts, len(prompts))
    client = Client(url, key=key, timeout_seconds=timeout_seconds, clock=clock, sleep=sleep)
    with closing(client):
        greeting = Asking(sleep=client.pause, most=consecutive_errors)
        model, *adapters = greeting(PLAIN, client.models)
        _offered(prompts, adapters, url)

        def ask(work: Work, tokens: int = max_tokens) -> Answer:
            as_served = work.run == SPEED
            return client.ask(
                work.prompt,
                model=model,
                arm=work.arm,
                draft_len=speed_draft_len if as_served else draft_len,
                max_tokens=tokens,
                temperature=work.temperature,
                seed=work.seed,
                logprobs=not as_served,
                stream=as_served,
            )

        first = [Work("greeting", arm, prompts[0], temperatures[0], 1) for arm in arms]
        few = min(max_tokens, WARM_UP_TOKENS)
        greeted = {work.arm: greeting(work.arm, partial(ask, work, few)) for work in first}
        told = client.told()
        conditions = Conditions(
            release=_one_release(greeted),
            pairs={arm: answer.pair for arm, answer in greeted.items()},
            prompts_digest=prompts_digest(prompts),
            prompts=len(prompts),
            speed_prompts=count,
            draft_len=draft_len,
            speed_draft_len=speed_draft_len,
            max_tokens=max_tokens,
            temperatures=tuple(temperatures),
            seed=seed,
            concurrency=concurrency,
            speed_concurrencies=tuple(speed_concurrencies),
            block_prompts=BLOCK_PROMPTS,
            engine=str(told.get("engine", "unknown")),
            machine=f"{platform.machine()}, {os.cpu_count()} CPUs",
            code_version=code_version(),
            **started_with(told),
        )
        batched = list(acceptance(prompts, arms, temperatures, concurrency=concurrency, seed=seed))
        blocks = list(
            speed(
                prompts,
                [arm for arm in arms if timed is None or arm in timed],
                temperatures,
                speed_concurrencies,
                count=count,
            )
        )
        with Journal(journal, asdict(conditions)) as lines:
            if lines.put_aside is not None:
                notice(lines.put_aside)
            stored = Stored(lines)
            asking = Asking(
                sleep=client.pause,
                failed=stored.failed,
                gone=stored.gone,
                most=consecutive_errors,
            )
            run = Run(conditions, client, stored, ask, asking, clock, progress)
            incomplete = run.everything(batched, blocks)
            return stored.measurement(conditions, prompts, batched, blocks, incomplete)


def _check(
    prompts: Sequence[Prompt],
    arms: Sequence[str],
    temperatures: Sequence[float],
    concurrencies: Sequence[int],
) -> None:
    if not prompts:
        raise ValueError("got no prompts, wanted at least one: nothing can be measured")
    if len({prompt.id for prompt in prompts}) < len(prompts):
        raise ValueError("two prompts have the same id, wanted every id once")
    first: dict[tuple[str, str | None], str] = {}
    for prompt in prompts:
        before = first.setdefault((question_digest(prompt), prompt.adapter), prompt.id)
        if before != prompt.id:
            raise ValueError(
                f"prompts {before!r} and {prompt.id!r} ask the same question, wanted each once: "
                "asked again it is no independent prompt, and intervals would be too narrow"
            )
    if PLAIN not in arms or len(set(arms)) < len(arms) or not set(arms) <= set(ARMS):
        raise ValueError(
            f"got arms {', '.join(arms) or '(none)'}; wanted some of {', '.join(ARMS)}, each "
            f"once, {PLAIN!r} among them: plain decoding is what the others are compared with"
        )
    for name, given in (("temperatures", temperatures), ("speed_concurrencies", concurrencies)):
        if not given or len(set(given)) < len(given):
            raise ValueError(f"got {name} {tuple(given)}, wanted at least one, each once")


def _offered(prompts: Sequence[Prompt], adapters: Sequence[str], url: str) -> None:
    for prompt in prompts:
        if prompt.adapter is not None and prompt.adapter not in adapters:
            raise ValueError(
                f"prompt {prompt.id!r} is for the adapter {prompt.adapter!r}; {url} offers "
                f"{', '.join(adapters) or 'none'}: serve it, or leave the prompt out"
            )


def _one_release(greeted: Mapping[str, Answer]) -> str:
    releases = {answer.release for answer in greeted.values()}
    if len(releases) != 1:
        told = ", ".join(f"{arm} {answer.release[:12]}" for arm, answer in greeted.items())
        raise MeasurementError(f"the arms are not on one release ({told}): not comparable")
    return releases.pop()
