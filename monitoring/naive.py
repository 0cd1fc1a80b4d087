"""Detectors that others would use: river's, fed token by token with whether each was rejected.

Beside them the proof shows what it is worth that ours are fed with requests: tokens of one request
go together, so a detector that takes them as independent alarms by chance. Never run in service.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from speculation.records import Counts, Exchange

NAMES = ("DDM", "EDDM", "FHDDM", "HDDM_A", "HDDM_W", "Page-Hinkley", "KSWIN", "ADWIN on tokens")


class Naive:
    """All of them over one stream, with their defaults. The verb is `update`."""

    def __init__(self, seed: int) -> None:
        drift: Any = import_module("river.drift")  # not everything in it is typed
        binary: Any = import_module("river.drift.binary")
        self._order = np.random.default_rng(seed)  # of a request's tokens, which counts do not hold
        made = (
            *(binary.DDM(), binary.EDDM(), binary.FHDDM(), binary.HDDMA(), binary.HDDMW()),
            *(drift.PageHinkley(), drift.KSWIN(seed=seed), drift.ADWIN()),
        )
        self._detectors: dict[str, Any] = dict(zip(NAMES, made, strict=True))

    def update(self, exchange: Exchange) -> set[str]:
        """One request. Which of them alarmed within it."""
        found: set[str] = set()
        for rejected in self._tokens(exchange.counts):
            for name, detector in self._detectors.items():
                detector.update(rejected)
                if detector.drift_detected:
                    found.add(name)
        return found

    def drop(self, name: str) -> None:
        """Nobody waits for it any more."""
        self._detectors.pop(name, None)

    def _tokens(self, counts: Counts) -> list[bool]:
        rejected = np.zeros(counts.judged, dtype=bool)
        rejected[counts.accepted :] = True
        self._order.shuffle(rejected)
        return [bool(one) for one in rejected]
