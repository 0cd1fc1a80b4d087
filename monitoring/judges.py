"""Every detector over the requests of one pair and drafter, against one baseline.

Knows which of them is fed with what, and what one that is on means for the others; knows nothing of
causes, files or where a baseline came from. Three raise an alarm by themselves: the CUSUM, the
collapse and the confidence sequence. ADWIN confirms what another saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from monitoring.baselines import Baseline, Deviation
from monitoring.detectors.burning import BurnRate
from monitoring.detectors.collapse import Collapse, RejectedOff
from monitoring.detectors.confidence import MARGIN, Confirm
from monitoring.detectors.cusum import ALLOWANCE, Cusum, threshold_for
from monitoring.detectors.weights import weight
from monitoring.detectors.windowing import Adwin
from monitoring.facts import Excursion
from monitoring.slicewatch import seen
from speculation.records import Counts


@dataclass(slots=True)
class Judges:
    """The verb is `update`."""

    cusum: Cusum = field(default_factory=Cusum)
    collapse: Collapse = field(default_factory=Collapse)
    off: RejectedOff = field(default_factory=RejectedOff)
    adwin: Adwin = field(default_factory=Adwin)
    confirm: Confirm = field(default_factory=Confirm)
    burn: BurnRate = field(default_factory=BurnRate)
    below_floor: int = 0  # requests ever

    def compare_with(self, baseline: Baseline) -> None:
        """Start over against a baseline."""
        self.cusum, self.collapse = cusum_for(baseline), collapse_for(baseline.acceptance.estimate)
        self.adwin, self.confirm = Adwin(), Confirm(margin=MARGIN + baseline.uncertainty)

    def update(
        self,
        counts: Counts,
        deviates: Deviation | None,
        *,
        at: float,
        floor: float | None = None,  # deviation below which a request is a bad one
        rejected_off: bool = False,  # drafting was off when it ended: too much had been rejected
        may_be_dead: bool = True,  # False of a draft without weights that never lived
    ) -> bool:
        """One request. True while the draft looks dead: nothing else is learnt meanwhile."""
        began = next((c.since for c in (self.collapse.excursion, self.cusum) if c.level > 0), None)
        self.off.update(rejected_off, at=at, began=began)
        if floor is not None and (deviates is not None or rejected_off):
            bad = rejected_off or (deviates is not None and deviates.value < floor)
            self.burn.update(bad, at=at)
            self.below_floor += bad
        dead = may_be_dead and self.collapse.update(
            judged=counts.judged, accepted=counts.accepted, at=at, rejected_off=rejected_off
        )
        if dead:  # the fall is explained, and a draft that comes back starts even
            self.cusum = Cusum(self.cusum.allowance, self.cusum.threshold)
            self.adwin, self.confirm = Adwin(), Confirm(margin=self.confirm.margin)
        elif deviates is not None:
            worth = weight(deviates.judged)
            self.cusum.update(-deviates.value, at=at, weight=worth)
            self.adwin.update(worth * deviates.value, at=at)
            self.confirm.update(worth * deviates.value, at=at)
        return dead

    @property
    def on(self) -> bool:
        """Does any of them say something?"""
        return (
            self.cusum.on
            or self.collapse.excursion.on
            or self.off.on
            or self.confirm.on
            or self.burn.on
        )

    @property
    def dying(self) -> bool:
        """Is it undecided whether the draft is dead?"""
        return self.collapse.excursion.level > 0 and self.cusum.level < 2 * self.cusum.threshold

    @property
    def fallen(self) -> Excursion | None:
        return seen(self.cusum, "cusum")

    @property
    def dead(self) -> Excursion | None:
        return seen(self.collapse.excursion, "collapse")

    @property
    def rejected_off(self) -> Excursion | None:
        off = self.off
        return Excursion(off.since, off.requests, 0.0, "pace") if off.on else None

    @property
    def slow(self) -> tuple[Excursion, ...]:
        return tuple(
            Excursion(one.since, one.requests, one.level, name)
            for name, one in (("confidence", self.confirm), ("adwin", self.adwin))
            if one.on
        )

    @property
    def confirmed(self) -> bool:
        """Is a fall sure: by the confidence sequence, or seen by two that look differently?"""
        return self.confirm.on or (self.adwin.on and self.cusum.on)

    @property
    def burning(self) -> Excursion | None:
        burn = self.burn
        return Excursion(burn.since, burn.requests, burn.level, "burn rate") if burn.on else None

    def to_json(self) -> dict[str, Any]:
        plain = ("cusum", "collapse", "off", "confirm", "burn")
        return {name: asdict(getattr(self, name)) for name in plain} | {
            "adwin": self.adwin.to_json(),
            "below_floor": self.below_floor,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Judges:
        return cls(
            Cusum(**stored["cusum"]),
            Collapse.from_json(stored["collapse"]),
            RejectedOff(**stored["off"]),
            Adwin.from_json(stored["adwin"]),
            Confirm.from_json(stored["confirm"]),
            BurnRate(**stored["burn"]),
            stored["below_floor"],
        )


def cusum_for(baseline: Baseline) -> Cusum:
    """Calibrated to how requests spread, where that is known; wider where the baseline is vague."""
    allowance = ALLOWANCE + baseline.excess_uncertainty
    if baseline.spread is None:
        return Cusum(allowance)
    return Cusum(allowance, threshold_for(baseline.spread))


def collapse_for(usual: float) -> Collapse:
    """A draft lives at half of what is usual, or above."""
    return Collapse(alive=max(usual / 2, 0.01))
