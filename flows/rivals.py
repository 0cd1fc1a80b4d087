"""What a pair is made from and judged against, as the registry has it now: its rivals.

What a look at a release gives follows from them as much as from the configuration, so its marker
names them: with another champion the same release is looked at anew. Knows the registry and
markers; knows nothing of Prefect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configuration.settings import Settings
from flows.line import store
from flows.steps import finished, read_json

NAMES = ("champion", "parent")


def rivals(settings: Settings, pairing: str, release: str, work: Path, step: str) -> dict[str, int]:
    """The versions of the champion and of the pair whose draft is trained on from; 0: there is
    none.

    What stands in for the release's own draft is no rival. Where what was made in `work` is the
    champion already, they are those that `step` noted before it was.
    """
    from flows.making import last_with_weights

    registry = store(settings)
    champion = registry.champion(pairing)
    number = None if champion is None else champion.version
    noted: dict[str, Any] = (read_json(work / f"{step}.done.json") or {}).get("inputs", {})
    made = (finished(work, "register") or {}).get("version")
    if number is not None and number == made and set(NAMES) <= noted.keys():
        return {name: noted[name] for name in NAMES}
    stands_in = champion is not None and champion.stands_in and champion.release == release
    parent = last_with_weights(registry.pairs(pairing), number)
    return {
        "champion": 0 if number is None or stands_in else number,
        "parent": 0 if parent is None else parent.version,
    }
