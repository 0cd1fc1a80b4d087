"""Measures the arms of one running trial server on the same prompts at one draft length.

Two kinds of runs. Batched: every arm answers every prompt, several at a time; acceptance and text
come from here. Alone: one request at a time, in blocks of one arm, the order of the arms reversed
from block to block (ABBA), so that a machine that warms up or slows down favours no arm; speed
comes from here. Knows endpoints and samples; knows nothing of intervals or limits.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from evaluation.client import Answer, Client, MeasurementError
from evaluation.journal import Journal
from evaluation.samples import (
    Conditions,
    Measurement,
    Sample,
    from_line,
    prompts_digest,
    to_line,
)
from speculation.records import Prompt

ARMS = ("candidate", "incumbent", "ngram", "none")  # none: plain decoding, always measured
PLAIN = "none"
BLOCK_PROMPTS = 2  # requests of one arm in a row in the speed runs
WARM_UP_TOKENS = 8

Progress = Callable[[int, int, str], None]  # done, total, what


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class _Work:
    run: str
    arm: str
    prompt: Prompt
    block: int = 0
    seed: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run, self.arm, self.prompt.id


def measure(
    url: str,
    prompts: Sequence[Prompt],
    *,
    arms: Sequence[str] = ARMS,
    draft_len: int,
    max_tokens: int,
    journal: Path,
    temperature: float = 0.0,
    seed: int = 0,
    concurrency: int = 8,
    speed_prompts: int = 16,
    progress: Progress = quiet,
    timeout_seconds: float = 330.0,  # of one request: a server of ours says itself that it was late
    key: str | None = None,  # where the server wants one
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Measure `arms` of the trial server at `url`. Goes on where the journal ends.

    Every arm but n-gram is also measured alone: n-gram is a yardstick of acceptance here.

    Raises ValueError for arms or prompts that cannot be measured, JournalError for a damaged
    journal, and MeasurementError with the reason when the endpoint dies, refuses, hangs, changes
    its pair midway or reports counts that cannot be.
    """
    _check(prompts, arms)
    spread = min(speed_prompts, len(prompts))
    speed = [prompts[i * len(prompts) // spread] for i in range(spread)]
    with closing(Client(url, key=key, timeout_seconds=timeout_seconds, clock=clock)) as client:
        model = client.model()

        def ask(work: _Work, tokens: int) -> Answer:
            return client.ask(
                work.prompt,
                model=model,
                arm=work.arm,
                draft_len=draft_len,
                max_tokens=tokens,
                temperature=temperature,
                seed=work.seed,
                logprobs=work.run != "alone",
            )

        greeted = {
            arm: ask(_Work("greeting", arm, prompts[0]), min(max_tokens, WARM_UP_TOKENS))
            for arm in arms
        }
        conditions = Conditions(
            release=_one_release(greeted),
            pairs={arm: answer.pair for arm, answer in greeted.items()},
            prompts_digest=prompts_digest(prompts),
            prompts=len(prompts),
            speed_prompts=spread,
            draft_len=draft_len,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            concurrency=concurrency,
            block_prompts=BLOCK_PROMPTS,
            engine=client.engine(),
            machine=f"{platform.machine()}, {os.cpu_count()} CPUs",
            code_version=_code_version(),
        )
        batched = list(_batched(prompts, arms, temperature, seed))
        blocks = list(_blocks(speed, [arm for arm in arms if arm != "ngram"], temperature, seed))
        total = len(batched) + sum(map(len, blocks))
        with Journal(journal, asdict(conditions)) as stored:
            done = {(s["run"], s["arm"], s["prompt"]) for s in stored.samples}
            finished = sum(work.key in done for work in batched)
            progress(finished, total, "measuring")

            def finish(work: _Work, answer: Answer) -> None:
                nonlocal finished
                if (answer.release, answer.pair) != (
                    conditions.release,
                    conditions.pairs[work.arm],
                ):
                    raise MeasurementError(
                        f"{url} began with pair {conditions.pairs[work.arm]} as {work.arm} and "
                        f"answers with {answer.pair}: it was swapped during the measurement"
                    )
                stored.add(to_line(Sample(work.run, work.arm, work.prompt.id, work.block, answer)))
                finished += 1
                progress(finished, total, f"{work.arm}, {work.run}")

            waiting = [work for work in batched if work.key not in done]
            _in_batches(waiting, lambda work: ask(work, max_tokens), finish, concurrency, client)
            for block in blocks:
                if all(work.key in done for work in block):
                    finished += len(block)
                    progress(finished, total, "measured before")
                    continue
                for work in block:  # a block cut in two by a kill is measured again as a whole
                    finish(work, ask(work, max_tokens))
            latest = {(s["run"], s["arm"], s["prompt"]): s for s in stored.samples}
        wanted = [work.key for work in batched] + [work.key for block in blocks for work in block]
        return Measurement(
            conditions, tuple(prompts), tuple(from_line(latest[key]) for key in wanted)
        )


def _check(prompts: Sequence[Prompt], arms: Sequence[str]) -> None:
    if not prompts:
        raise ValueError("got no prompts, wanted at least one: nothing can be measured")
    if len({prompt.id for prompt in prompts}) < len(prompts):
        raise ValueError("two prompts have the same id, wanted every id once")
    if PLAIN not in arms or len(set(arms)) < len(arms) or not set(arms) <= set(ARMS):
        raise ValueError(
            f"got arms {', '.join(arms) or '(none)'}; wanted some of {', '.join(ARMS)}, each "
            f"once, {PLAIN!r} among them: plain decoding is what the others are compared with"
        )


def _one_release(greeted: Mapping[str, Answer]) -> str:
    releases = {answer.release for answer in greeted.values()}
    if len(releases) != 1:
        told = ", ".join(f"{arm} {answer.release[:12]}" for arm, answer in greeted.items())
        raise MeasurementError(f"the arms are not on one release ({told}): not comparable")
    return releases.pop()


def _batched(
    prompts: Sequence[Prompt], arms: Sequence[str], temperature: float, seed: int
) -> Iterator[_Work]:
    drawn = temperature > 0
    for arm in arms:
        for place, prompt in enumerate(prompts):
            yield _Work("batched", arm, prompt, seed=seed + place if drawn else None)
    if drawn:  # how far plain is from itself
        for place, prompt in enumerate(prompts):
            yield _Work("again", PLAIN, prompt, seed=seed + len(prompts) + place)


def _blocks(
    prompts: Sequence[Prompt], arms: Sequence[str], temperature: float, seed: int
) -> Iterator[list[_Work]]:
    """Blocks of the speed runs: within one, each arm answers the same few prompts in a row."""
    for number, first in enumerate(range(0, len(prompts), BLOCK_PROMPTS)):
        order = arms if number % 2 == 0 else list(reversed(arms))
        yield [
            _Work("alone", arm, prompt, number, seed + first if temperature > 0 else None)
            for arm in order
            for prompt in prompts[first : first + BLOCK_PROMPTS]
        ]


def _in_batches(
    waiting: Sequence[_Work],
    ask: Callable[[_Work], Answer],
    finish: Callable[[_Work, Answer], None],
    concurrency: int,
    client: Client,
) -> None:
    """Ask one arm after the other, `concurrency` requests at a time; finish in this thread."""
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="measure")
    try:
        for kind in dict.fromkeys((work.run, work.arm) for work in waiting):
            asked = {
                pool.submit(ask, work): work for work in waiting if (work.run, work.arm) == kind
            }
            for answered in as_completed(asked):
                finish(asked[answered], answered.result())
    except BaseException:  # Ctrl-C as well: the pool below waits for what is in flight
        client.abort()  # ends it
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _code_version() -> str:
    try:
        return metadata.version("paceline")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"
