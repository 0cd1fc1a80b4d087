"""What a pair under watch is expected to be: the release it was validated for, and its report.

Introduces the registry to the monitor: the one knows what was measured, the other what is served.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from evaluation.report import Report, ReportError
from monitoring.baselines import Baseline
from monitoring.slices import cell_of, named
from monitoring.watched import Expected
from registry import remote
from registry.errors import NotFoundError, RegistryError, StoreError
from registry.fingerprint import PARTS
from registry.manifest import PairManifest

log = logging.getLogger("paceline.monitoring")

AGAIN_SECONDS = 30.0  # after the registry knew nothing of a pair, or was away


class Expectations:
    """Asks the registry about each pair once. The verb is `of`."""

    def __init__(
        self,
        registry: Callable[[], str | None],  # its URL now; None where it is away
        pairing: str,
        *,
        token: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._pairing = registry, pairing
        self._token, self._clock = token, clock
        self._known: dict[str, Expected] = {}
        self._not_before: dict[str, float] = {}

    def of(self, pair: str) -> Expected | None:
        """None where the registry does not know the pair yet; the monitor learns by itself then."""
        if pair not in self._known and self._clock() >= self._not_before.get(pair, 0.0):
            try:
                found = self._asked(pair)
            except RegistryError as error:
                found = None
                log.warning("no expectations of pair %s: %s", pair, error)
            if found is None:
                self._not_before[pair] = self._clock() + AGAIN_SECONDS
            else:
                self._known[pair] = found
        return self._known.get(pair)

    def _asked(self, pair: str) -> Expected | None:
        url = self._registry()
        if url is None:
            raise StoreError("the home's own MLflow does not run now")
        champion = remote.champion(url, self._pairing, token=self._token)
        if champion is None or champion.pair_id != pair:
            return None
        baseline, parts, engine = None, dict[str, str](), ""
        try:
            manifest = remote.manifest(champion, token=self._token)
            parts, engine = parts_of(manifest), engine_of(manifest)
            report = Report.from_json(remote.report(champion, token=self._token))
            baseline = measured(report, engine=engine)
        except (NotFoundError, ReportError) as error:
            log.warning("pair %s has no baseline, it is learnt from requests: %s", pair, error)
        return Expected(champion.release, baseline, champion.draft_kind, parts)


def parts_of(manifest: PairManifest) -> dict[str, str]:
    """The digests of the parts of the release that the pair was validated for."""
    told = {name: getattr(manifest.release, name, None) for name in PARTS}
    return {name: value for name, value in told.items() if isinstance(value, str)}


def engine_of(manifest: PairManifest) -> str:
    """What it was measured on, as servers name themselves; empty where the version is not known."""
    version = manifest.engine_version
    return f"{manifest.engine} {version}" if manifest.engine and version[:1].isdigit() else ""


def measured(report: Report, *, engine: str = "") -> Baseline | None:
    """What the candidate of a report was measured at, by kind of request; None where it drafted
    nothing."""
    candidate = report.of("candidate")
    if not any(request.counts.judged for request in candidate):
        return None
    adapters = {prompt.id: prompt.adapter for prompt in report.prompts}
    cells = [
        cell_of(named(adapters.get(one.prompt), one.prompt_tokens, one.temperature))
        for one in candidate
    ]
    return Baseline.of([request.counts for request in candidate], cells, engine=engine)
