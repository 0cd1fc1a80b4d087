"""MLflow's versions as the store's records. Knows their tags; asks nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from registry.versions import (
    DRAFT_KIND,
    PAIR_ID,
    PINNED_WHY,
    RELEASE,
    SOURCE,
    URI,
    VERDICT,
    PairVersion,
    ReleaseVersion,
    as_named_now,
)

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

MODEL_ID = re.compile(r"m-[0-9a-f]{32}")


def _model_id(version: ModelVersion) -> str:
    matched = MODEL_ID.search(str(version.source))
    return matched.group() if matched else ""


def release_of(pairing: str, version: ModelVersion) -> ReleaseVersion:
    return ReleaseVersion(
        pairing=pairing,
        version=int(version.version),
        digest=version.tags[RELEASE],
        uri=version.tags.get(URI, ""),
        model_id=_model_id(version),
        registered=version.creation_timestamp / 1000,
        source=version.tags.get(SOURCE, ""),
        pinned_why=version.tags.get(PINNED_WHY, ""),
    )


def pair_of(pairing: str, version: ModelVersion, aliases: Mapping[str, int]) -> PairVersion:
    number, tags = str(version.version), as_named_now(version.tags)
    return PairVersion(
        pairing=pairing,
        version=int(number),
        pair_id=tags[PAIR_ID],
        release=tags.get(RELEASE, ""),
        draft_kind=tags.get(DRAFT_KIND, ""),
        verdict=tags.get(VERDICT, ""),
        aliases=tuple(sorted(alias for alias, v in aliases.items() if str(v) == number)),
        tags=tags,
        model_id=_model_id(version),
        run_id=version.run_id or "",
        registered=version.creation_timestamp / 1000,
    )
