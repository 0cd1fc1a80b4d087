"""One round of everything that decodes: draft, verify in one forward of the target, commit.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, for all rows at once; a row with no draft has
a plain step of its own in the same forward. Token ids only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from speculation.commit import Observer, commit
from speculation.drafting import Drafted, Drafting
from speculation.forward import Forward
from speculation.judging import Draft, Verification, judge
from speculation.lengths import Lengths, RoundTimes
from speculation.rows import Rows
from speculation.sequence import Event


class Rounds:
    """Rounds of the running rows."""

    def __init__(
        self,
        rows: Rows,
        forward: Forward,
        drafting: Drafting,
        lengths: Lengths,
        *,
        verification: Verification,
        observer: Observer | None,
        clock: Callable[[], float],
    ) -> None:
        self._rows, self._forward, self._drafting, self._lengths = rows, forward, drafting, lengths
        self._verification, self._observer, self._clock = verification, observer, clock

    def run(self) -> list[Event]:
        """What the round did for each running row, in order; those that ended have left."""
        running = list(self._rows.running)
        times = RoundTimes(began=self._clock())
        drafted = self._drafting.propose(running, self._lengths.choose(running))
        drafts = self._drafts(drafted)
        times.drafted = self._clock()
        logits, features = self._verified(drafts)
        accepted, added = judge(logits, drafts, self._verification)
        times.judged = self._clock()
        self._drafting.timed_step(times.judged - times.drafted)
        events = []
        for row, token in enumerate(added):
            block = [*drafts[row].ids[: accepted[row]], *([] if token is None else [token])]
            states = None if features is None else features[row, : len(block)]
            events.append(
                self._commit(
                    row,
                    drafts[row],
                    block,
                    states,
                    logits[row, : len(block)],
                    failed=token is None,
                )
            )
        times.done = self._clock()
        kept = [len(event.token_ids) for event in events]
        self._lengths.learn(running, drafted, accepted, kept, times)
        # From the last row on: what moves to a free row has not ended itself.
        for sequence, event in reversed(list(zip(running, events, strict=True))):
            if event.outcome is not None:
                self._rows.leave(sequence)
        return events

    def _drafts(self, drafted: Drafted) -> list[Draft]:
        return [
            Draft(ids, law, sequence.past, sequence.key, len(sequence.tokens))
            for sequence, ids, law in zip(
                self._rows.running, drafted.ids, drafted.laws, strict=True
            )
        ]

    def _verified(self, drafts: Sequence[Draft]) -> tuple[Tensor, Tensor | None]:
        """The target after each row's last token and each drafted one: logits [B, K + 1, V], and
        what drafters read of its states. Rows with fewer than K are padded, and overwritten."""
        running = self._rows.running
        width = max(len(draft.ids) for draft in drafts)
        feeds = []
        for sequence, draft in zip(running, drafts, strict=True):
            last = sequence.tokens[-1]
            feeds.append([last, *draft.ids, *[last] * (width - len(draft.ids))])
        hidden, features = self._forward.states(
            feeds,
            [len(sequence.tokens) - 1 for sequence in running],
            range(len(running)),
            [sequence.request.adapter for sequence in running],
        )
        return self._forward.logits(hidden), features

    def _commit(
        self,
        row: int,
        draft: Draft,
        block: list[int],
        states: Tensor | None,
        logits: Tensor,
        *,
        failed: bool,
    ) -> Event:
        """Append a row's block: the drafted tokens that were kept and the one the target adds."""
        sequence = self._rows.running[row]
        event = commit(
            sequence,
            block,
            logits,
            drafted=len(draft.ids),
            accepted=len(block) - (not failed),
            failed=failed,
            clock=self._clock,
        )
        if event.outcome is None:
            # The fed tokens' states: those of the block but its last, and of the one before.
            self._drafting.observe(sequence, row, len(sequence.tokens) - 1 - len(block), states)
        if self._observer is not None:
            self._observer(sequence.request.id, states, logits[: len(event.token_ids)])
        return event
