"""What a measurement has so far, read from its journal and written through to it.

Five kinds of lines: a sample, the time of a block of the speed runs, a failed request, how many of
those failed because the endpoint was gone, and that the blocks of one kind so far are void. Of two
lines of one thing the later one counts. Knows what lines mean; the journal knows how they lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from evaluation.journal import Journal
from evaluation.samples import (
    Conditions,
    Key,
    Measurement,
    Sample,
    SpeedBlock,
    from_line,
    to_line,
)
from evaluation.work import Block, Work
from speculation.records import Prompt

BLOCK, ERROR, VOID = "block seconds", "error", "void"  # `run` of the lines that are no samples
GONE = "endpoint gone"  # the same; earlier journals have none


class Stored:
    """The samples, blocks and failures of one journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.samples: dict[Key, Sample] = {}
        self.blocks: dict[tuple[str, float, int, int], SpeedBlock] = {}
        self.errors: Counter[str] = Counter()
        for line in journal.samples:
            if line["run"] == BLOCK:
                block = SpeedBlock(**line["of"])
                self.blocks[block.key] = block
            elif line["run"] == ERROR:
                self.errors[line["arm"]] += 1
            elif line["run"] == GONE:  # what is asked again did not fail by itself
                self.errors.subtract(line["errors"])
            elif line["run"] == VOID:
                kind = line["temperature"], line["concurrency"]
                kept = self.blocks.values()
                self.blocks = {b.key: b for b in kept if (b.temperature, b.concurrency) != kind}
            else:
                sample = from_line(line)
                self.samples[sample.key] = sample

    def add(self, sample: Sample) -> None:
        self._journal.add(to_line(sample))
        self.samples[sample.key] = sample

    def add_block(self, block: SpeedBlock) -> None:
        self._journal.add({"run": BLOCK, "of": asdict(block)})
        self.blocks[block.key] = block

    def void(self, temperature: float, concurrency: int) -> None:
        """Whoever goes on from this journal measures these blocks anew."""
        self._journal.add({"run": VOID, "temperature": temperature, "concurrency": concurrency})

    def failed(self, arm: str, why: str) -> None:
        self._journal.add({"run": ERROR, "arm": arm, "why": why})
        self.errors[arm] += 1

    def gone(self, failures: Mapping[str, int]) -> None:
        """So many of the failures of each arm ended this run. They count in it, and no longer for
        whoever goes on from this journal."""
        self._journal.add({"run": GONE, "errors": dict(failures)})

    def measurement(
        self,
        conditions: Conditions,
        prompts: Sequence[Prompt],
        batched: Sequence[Work],
        blocks: Sequence[Sequence[Block]],
        incomplete: str | None,
    ) -> Measurement:
        """What of the plan there is, in its order. Of the speed runs whole blocks only."""
        whole = [
            part
            for block in blocks
            if all(part.key in self.blocks for part in block)
            for part in block
        ]
        wanted = [work.key for work in batched] + [w.key for part in whole for w in part.work]
        return Measurement(
            conditions,
            tuple(prompts),
            tuple(self.samples[key] for key in wanted if key in self.samples),
            tuple(self.blocks[part.key] for part in whole),
            {arm: self.errors[arm] for arm in conditions.pairs},
            incomplete,
        )
