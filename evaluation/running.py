"""A measurement under way: asks what is not answered yet, in the planned order, and keeps it.

Several requests at a time are asked by threads; their answers are kept by one. Knows work, a client
and what is stored; measure.py sets them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial

from evaluation.asking import Asking, EndedError
from evaluation.client import Answer, Client, MeasurementError
from evaluation.remaining import Kind, Remaining
from evaluation.samples import ACCEPTANCE, AGAIN, SEEDED, Conditions, Sample, SpeedBlock
from evaluation.slowing import slowed
from evaluation.stored import Stored
from evaluation.work import Block, Work

Progress = Callable[[int, int, str], None]  # done, total, what
IN_ALL = "in all, seconds"  # of the progress whose unit is time: what is left of it is time left


@dataclass
class Run:
    """One measurement. `everything` is its one verb."""

    conditions: Conditions
    client: Client
    stored: Stored
    ask: Callable[[Work], Answer]
    asking: Asking
    clock: Callable[[], float]
    progress: Progress
    _total: Counter[str] = field(default_factory=Counter)
    _finished: Counter[str] = field(default_factory=Counter)
    _remaining: Remaining = field(init=False)

    def everything(self, batched: Sequence[Work], blocks: Sequence[Sequence[Block]]) -> str | None:
        """Why it ended early, or None. Raises MeasurementError where nothing was measured."""
        waiting = [work for work in batched if work.key not in self.stored.samples]
        left = [b for b in blocks if not all(part.key in self.stored.blocks for part in b)]
        timed = [work for block in left for part in block for work in part.work]
        whole = [*batched, *(work for b in blocks for part in b for work in part.work)]
        self._plan(whole, [*waiting, *timed])
        try:
            for kind in dict.fromkeys((w.run, w.arm, w.temperature) for w in waiting):
                these = [w for w in waiting if (w.run, w.arm, w.temperature) == kind]
                self._at_once(these, self.conditions.concurrency)
            self._blocks(left)
        except EndedError as ended:
            if not self.stored.samples:
                raise MeasurementError(str(ended)) from ended
            return str(ended)
        found = slowed(list(self.stored.blocks.values()), list(self.stored.samples.values()))
        for temperature, at_once in found:
            self.stored.void(temperature, at_once)
        return next(iter(found.values()), None)

    def _plan(self, whole: Sequence[Work], left: Sequence[Work]) -> None:
        self._total = Counter(map(_what, whole))
        self._finished = self._total - Counter(map(_what, left))
        self._remaining = Remaining(map(_kind, left), self.clock)
        for what, total in self._total.items():
            self.progress(self._finished[what], total, what)

    def _blocks(self, blocks: Sequence[Sequence[Block]]) -> None:
        warm: set[tuple[str, int]] = set()
        for block in blocks:
            for part in block:  # K learns what pays, and the machine what it is to do
                if (part.arm, part.concurrency) not in warm:
                    warm.add((part.arm, part.concurrency))
                    self._at_once(part.work, part.concurrency, keep=False)
            for part in block:  # a block cut in two by a kill is measured again as a whole
                begun = self.clock()
                self._at_once(part.work, part.concurrency)
                seconds = self.clock() - begun
                self.stored.add_block(SpeedBlock(*part.key, seconds))

    def _at_once(self, waiting: Iterable[Work], concurrency: int, *, keep: bool = True) -> None:
        """Ask `concurrency` requests at a time, finish in this thread. Raises EndedError."""
        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="measure")
        try:
            asked = {
                pool.submit(self.asking, work.arm, partial(self.ask, work)): work
                for work in waiting
            }
            for answered in as_completed(asked):
                answer = answered.result()
                self._check(asked[answered], answer)
                if keep:
                    self._finish(asked[answered], answer)
        except BaseException:  # Ctrl-C as well: the pool below waits for what is in flight
            self.asking.end("the measurement was given up")
            self.client.abort()  # ends it
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _check(self, work: Work, answer: Answer) -> None:
        began = self.conditions.pairs[work.arm]
        if (answer.release, answer.pair) != (self.conditions.release, began):
            raise EndedError(
                f"{self.client.url} began with pair {began} as {work.arm} and answers with "
                f"{answer.pair}: it was swapped during the measurement"
            )

    def _finish(self, work: Work, answer: Answer) -> None:
        where = (work.temperature, work.concurrency, work.block)
        self.stored.add(Sample(work.run, work.arm, work.prompt.id, *where, answer))
        what = _what(work)
        self._finished[what] += 1
        self._remaining.finished(_kind(work))
        left, past = self._remaining.seconds, self._remaining.elapsed
        if left is not None:
            self.progress(round(past), round(past) + round(left), IN_ALL)
        self.progress(self._finished[what], self._total[what], what)


def _what(work: Work) -> str:
    """A kind of run, for people."""
    if work.run == ACCEPTANCE:
        return "acceptance"
    if work.run == AGAIN:
        return "drawn again"
    if work.run == SEEDED:
        return "drawn with seeds"
    return f"speed, {work.concurrency} at once"


def _kind(work: Work) -> Kind:
    return work.run, work.arm, work.concurrency
