"""A pairing's LoRA adapters: where they lie, what they are, and whether they fit a release.

They are served beside the release, by the names that prompts and clients ask for. Plain values;
knows nothing of Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configuration.settings import Pairing, Settings


def adapters_of(settings: Settings, line: Pairing) -> dict[str, Path]:
    """The pairing's adapters, by name."""
    return {name: settings.path(folder) for name, folder in line.adapters.items()}


def digests_of(settings: Settings, line: Pairing, *, seen: bool = False) -> dict[str, str]:
    """What the adapters are now, by name; where they were only `seen` again since, by what is
    remembered of their files. Raises FolderError, with the adapter's name."""
    from registry.adapters import fingerprint_adapter
    from registry.cache import DigestCache
    from registry.errors import FolderError

    known = DigestCache(settings.home / "cache" / "digests.json") if seen else None
    found = {}
    for name, folder in adapters_of(settings, line).items():
        try:
            found[name] = fingerprint_adapter(folder, cache=known)
        except FolderError as error:
            raise FolderError(f"adapter {name}: {error}") from error
    return found


def set_of(settings: Settings, line: Pairing) -> str:
    """The name of the set of them that a pair is made for now; empty where there are none.

    Raises FolderError."""
    from registry.adapters import adapter_set

    return adapter_set(digests_of(settings, line, seen=True))


def check_fit(settings: Settings, line: Pairing, target: Path) -> None:
    """Raises ValueError, with every reason, where an adapter has no place in the target."""
    from registry.adapters import adapter_fits

    reasons = [
        f"adapter {name}: {reason}"
        for name, folder in adapters_of(settings, line).items()
        for reason in adapter_fits(target, folder).reasons
    ]
    if reasons:
        raise ValueError(
            f"the pairing's adapters do not fit {target}: {'; '.join(reasons)}. Give the pairing "
            "those that were made for this release"
        )


def bound(
    settings: Settings, pairing: str, plan: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """What binds a pair to its adapters: their digests by name, and where they live.

    Raises ValueError where an adapter is not what the plan was made with: a pair's figures are of
    that one."""
    line = settings.pairings.get(pairing, Pairing())  # one that is configured no more has none
    planned: Mapping[str, str] = plan.get("adapters") or {}
    now = digests_of(settings, line)
    for name in sorted(planned.keys() | now.keys()):
        if planned.get(name) != now.get(name):
            raise ValueError(
                f"the adapter {name} was {_short(planned.get(name))} when this was begun, and is "
                f"{_short(now.get(name))}: an adapter must not be changed in place; put it back, "
                "or run the retrain again"
            )
    places = adapters_of(settings, line)
    return now, {name: str(places[name]) for name in now}


def as_input(adapters: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
    """What a step's result follows from; nothing where there are none, so that what was finished
    before pairings had adapters stays finished."""
    return {"adapters": dict(adapters)} if adapters else {}


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]
