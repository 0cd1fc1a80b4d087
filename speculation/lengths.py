"""How many tokens each row of a round drafts: the K it was given, or what its drafter's pace finds.

Joins the engine's sequences to `pace`, which knows neither tokens nor clocks. A row whose K is said
(by the request, or by an engine that does not adapt) keeps it, and still teaches what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from speculation.cache import MOST_DRAFTED
from speculation.drafting import Drafted
from speculation.pace import Pace
from speculation.seats import Outcome, RequestPace, Seat, Timing
from speculation.sequence import Running

WEIGHTLESS = frozenset({"none"})  # kinds whose K is nothing to decide


@dataclass(slots=True)
class RoundTimes:
    """Clock readings of one round, in the order in which they are taken."""

    began: float = 0.0
    drafted: float = 0.0  # after the drafts
    judged: float = 0.0  # after the target's forward and its verdict: the device has finished
    done: float = 0.0


class Lengths:
    """K of every row, by drafter."""

    def __init__(
        self,
        kinds: Mapping[str, str],  # drafter name to its kind
        unread: Callable[[Running, int], int],  # committed tokens a row's draft has not read
        *,
        adaptive: bool,
    ) -> None:
        self.paces = {
            name: Pace() for name, kind in kinds.items() if adaptive and kind not in WEIGHTLESS
        }
        self._unread = unread
        self._behind: list[int] = []  # of each row of the round, tokens that its draft reads first

    def admit(self, sequence: Running) -> None:
        """A sequence begins."""
        if sequence.drafter in self.paces:
            sequence.pace = RequestPace()

    def choose(self, running: Sequence[Running]) -> list[int]:
        """K of each row in the coming round."""
        lens = [
            0 if self._paced(sequence) else max(min(sequence.draft_len, sequence.budget - 1), 0)
            for sequence in running
        ]
        width = 1 + max(lens, default=0)
        context = max(len(sequence.tokens) for sequence in running)
        self._behind = [0] * len(running)
        for name, pace in self.paces.items():
            rows = [row for row, s in enumerate(running) if s.drafter == name and s.pace]
            for row in rows:
                unread = self._unread(running[row], row)
                # A round's block is read along with it; a prompt is not.
                self._behind[row] = unread if unread > MOST_DRAFTED + 1 else 0
            rows = [row for row in rows if self._paced(running[row])]
            seats = []
            for row in rows:
                sequence = running[row]
                assert sequence.pace is not None
                seats.append(Seat(sequence.pace, sequence.budget, self._behind[row]))
            found = pace.draft_lens(seats, batch=len(running), context=context, width=width)
            for row, length in zip(rows, found, strict=True):
                lens[row] = length
        return lens

    def learn(
        self,
        running: Sequence[Running],
        drafted: Drafted,
        accepted: Sequence[int],
        kept: Sequence[int],  # tokens of each row's block before its end
        times: RoundTimes,
    ) -> None:
        """Fold in the round that was just run, for each drafter its own part of it."""
        lens = [len(ids) for ids in drafted.ids]
        # What is neither a drafter's nor the target's is the host's, also what stands between.
        host = times.done - times.began - (times.judged - times.drafted)
        host -= sum(drafted.seconds.values())
        for name, pace in self.paces.items():
            own = [row for row, s in enumerate(running) if s.drafter == name]
            asked = [row for row in own if drafted.asked[row]]
            timing = Timing(
                batch=len(running),
                context=max(len(sequence.tokens) for sequence in running),
                width=1 + max(lens, default=0),
                target_seconds=times.judged - times.drafted,
                draft_seconds=drafted.seconds[name] if asked else 0.0,
                overhead_seconds=host,
                drafted=max((lens[row] for row in own), default=0),
                drafting=sum(lens[row] > 0 for row in asked),
                in_vain=sum(lens[row] == 0 for row in asked),
                caught_up=sum(self._behind[row] for row in asked),
            )
            outcomes = []
            for row in own:
                request = running[row].pace
                if lens[row] and request is not None:
                    # As counts are: what lies behind the end was never judged.
                    judged = min(accepted[row] + 1, lens[row], kept[row])
                    outcomes.append(Outcome(request, judged, min(accepted[row], kept[row])))
            pace.observe(timing, outcomes)

    def finish(self, sequence: Running) -> None:
        """A sequence has ended."""
        if sequence.pace is not None and sequence.drafter in self.paces:
            self.paces[sequence.drafter].finish(sequence.pace, len(sequence.emitted))

    def _paced(self, sequence: Running) -> bool:
        return sequence.drafter in self.paces and sequence.request.draft_len is None
