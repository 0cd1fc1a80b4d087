"""What the store holds, as plain records: releases, pairs, and a pairing's whole state.

Also the names under which MLflow keeps them. Knows neither MLflow's classes nor HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from speculation.records import Phase

CHAMPION, CANDIDATE, PREVIOUS = "champion", "candidate", "previous"
PAIR_ID, RELEASE, URI = "paceline.pair_id", "paceline.release", "paceline.uri"
# MLflow's list of versions shows sixteen characters or so of a tag, its name among them: those that
# people read there have short names.
DRAFT_KIND, VERDICT, SIZE, OF_RELEASE = "kind", "verdict", "size", "release"
REPORT = "paceline.report"
PROMOTED, FORCED, ROLLED_BACK = "paceline.promoted", "paceline.forced", "paceline.rolled_back"
REPLACED = "paceline.replaced"  # the version that was champion before it
JUDGED_AGAINST = "paceline.judged_against"  # the version that was champion then; 0: none was
ENDED_EARLY = "paceline.ended_early"  # why its measuring was cut short; its verdict says no more
ADAPTERS = "paceline.adapters"  # the `adapter_set` of those its target is served with
PARENT = "paceline.parent"  # pair_id of the pair whose draft this one started from
SOURCE = "paceline.source"  # of a release that lives in MLflow: models:/name/version
PINNED = "pinned"  # the alias, on a release, that users are to stay on; and why, on that release:
PINNED_WHY = "paceline.pinned"
STANDS_IN = "paceline.stands_in"  # on a pair that serves a release until its own draft is made
SHOWN_METRICS = {"acceptance": "acceptance", "acceptance_length": "length", "speedup": "speed-up"}
# figures that make lists useful, and their tags
NAMES_BEFORE = {  # of tags, in registries from before they were short; only read
    "paceline.draft_kind": DRAFT_KIND,
    "paceline.verdict": VERDICT,
    "paceline.size": SIZE,
    **{f"paceline.{name}": tag for name, tag in SHOWN_METRICS.items()},
}
OURS = "paceline"  # on every registered model that Paceline made; says what it holds
UNJUDGED = "UNJUDGED"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """A release as the store knows it."""

    pairing: str
    version: int
    digest: str
    uri: str  # where the target lived when it was registered
    model_id: str  # MLflow's, of the external model behind the version
    registered: float  # seconds since the epoch
    source: str = ""  # models:/name/version, where the target is a version of MLflow's itself
    pinned_why: str = ""  # of the release that the pairing is or was pinned to


@dataclass(frozen=True, slots=True)
class PairVersion:
    """A pair as the store knows it."""

    pairing: str
    version: int
    pair_id: str
    release: str  # digest
    draft_kind: str
    verdict: str  # a `Phase`, or UNJUDGED
    aliases: tuple[str, ...]
    tags: Mapping[str, str]  # all of them, MLflow's and other people's too
    model_id: str  # MLflow's, of the logged model that holds the files
    run_id: str
    registered: float  # seconds since the epoch

    @property
    def passed(self) -> bool:
        return self.verdict == Phase.PASS

    @property
    def forced(self) -> str:
        """Why it was promoted without a PASS; empty when it was not."""
        return self.tags.get(FORCED, "")

    @property
    def rolled_back(self) -> str:
        """Why it was taken out of service; empty when it was not."""
        return self.tags.get(ROLLED_BACK, "")

    @property
    def unfit(self) -> str:
        """Why no server follows it as champion; empty where one does."""
        return unfit(self.verdict, self.forced, self.rolled_back)

    @property
    def stands_in(self) -> str:
        """Why a release went live with it before its own draft was made; empty for its own."""
        return self.tags.get(STANDS_IN, "")

    @property
    def replaced(self) -> int | None:
        """The version that was champion before it; None where none was, or it never was one."""
        told = self.tags.get(REPLACED, "")
        return int(told) if told.isdecimal() else None

    @property
    def judged_against(self) -> int | None:
        """The version that was champion when it was judged, 0: none was; None: not on record."""
        told = self.tags.get(JUDGED_AGAINST, "")
        return int(told) if told.isdecimal() else None

    @property
    def ended_early(self) -> str:
        """Why its measuring was cut short; empty where it was not."""
        return self.tags.get(ENDED_EARLY, "")

    @property
    def adapters(self) -> str:
        """The `adapter_set` of the adapters that it was judged with; empty where of none."""
        return self.tags.get(ADAPTERS, "")

    @property
    def parent(self) -> str:
        """pair_id of the pair whose draft this one started from; empty where there is none."""
        return self.tags.get(PARENT, "")

    @property
    def promoted(self) -> str:
        """When it was last made champion, ISO 8601; empty when it never was."""
        return self.tags.get(PROMOTED, "")

    def figure(self, name: str) -> float | None:
        """One of SHOWN_METRICS, None where it was not measured."""
        try:
            return float(self.tags[SHOWN_METRICS[name]])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class PairingState:
    """All that the store says of one pairing, newest first."""

    pairing: str
    releases: tuple[ReleaseVersion, ...]
    pairs: tuple[PairVersion, ...]
    warnings: tuple[str, ...] = ()  # what is odd and wants a person, one sentence each
    pinned: ReleaseVersion | None = None  # that users are to stay on, whatever is released

    def named(self, alias: str) -> PairVersion | None:
        """The pair that carries the alias."""
        return next((pair for pair in self.pairs if alias in pair.aliases), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `paceline status --json`."""
        return asdict(self)


def unfit(verdict: str, forced: str, rolled_back: str) -> str:
    """Why a pair with these tags is champion by nobody's decision, if it is: its alias was moved by
    hand. Empty where it passed and was not left since, or was promoted with a reason."""
    if forced:
        return ""
    if rolled_back:
        return f"was rolled back ({rolled_back})"
    return "" if verdict == Phase.PASS else f"has the verdict {verdict or 'none'}"


def target_name(pairing: str) -> str:
    """The registered model that holds the pairing's releases."""
    return f"{pairing}.target"


def as_named_now(tags: Mapping[str, str]) -> dict[str, str]:
    """A version's tags; those that it has by their former names only, by the present ones too."""
    former = {now: tags[name] for name, now in NAMES_BEFORE.items() if name in tags}
    return former | dict(tags)


def check_name(pairing: str) -> str:
    """The pairing's name, or `ValueError`: it becomes an MLflow name, a folder and a label."""
    if not NAME.fullmatch(pairing):
        raise ValueError(
            f"pairing: got {pairing!r}, wanted letters, digits, _ and -, at most 64 of them"
        )
    return pairing
