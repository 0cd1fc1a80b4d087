"""What `evaluate` is to measure. Of a pairing: its release, its drafts and its prompts, as the
registry and paceline.toml have them now. Measures nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.home import servers
from configuration.serving import Serving
from configuration.settings import Pairing, Settings
from speculation.records import WITHOUT_WEIGHTS

if TYPE_CHECKING:
    from registry.versions import PairVersion

WITHOUT = "none"  # the draft that is measured beside every other


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target, what drafts for it, and how it is asked."""

    target: Path
    draft: str  # a folder, or `ngram`
    incumbent: str | None
    prompts: Path
    line: Pairing
    serving: Serving
    adapters: Mapping[str, Path] = field(default_factory=dict)


def of_pairing(settings: Settings, pairing: str, out: Path) -> Wanted:
    """The candidate of the pairing beside its champion, on the candidate's release; the champion
    alone where there is no other. Drafts are fetched into `out`; which these are is told.

    Raises typer.BadParameter where there is nothing to measure, and ValueError where the release's
    folder does not hold what was registered.
    """
    from flows.adapters import adapters_of
    from flows.making import begin, fetched
    from registry.compatibility import compare
    from registry.store import Store
    from registry.versions import CANDIDATE, CHAMPION

    def draft_of(pair: PairVersion) -> str:
        weightless = pair.draft_kind in WITHOUT_WEIGHTS
        return pair.draft_kind if weightless else str(fetched(answering, pair, out / "pairs"))

    line = settings.pairing(pairing)
    with servers(settings) as there:
        answering, store = replace(settings, registry=there.registry), Store(there.registry)
        champion, newest = store.pair(pairing, CHAMPION), store.pair(pairing, CANDIDATE)
        judged = newest or champion
        if judged is None:
            raise typer.BadParameter(
                f"{pairing} has no pair yet: `paceline retrain --pairing {pairing}` makes one",
                param_hint="--pairing",
            )
        target = Path(begin(answering, pairing, judged.release)["target"])
        draft = draft_of(judged)
        if draft == WITHOUT:
            raise typer.BadParameter(
                f"{pairing} v{judged.version} decodes without a draft, which is measured beside "
                "every draft: name one with --draft",
                param_hint="--pairing",
            )
        said, incumbent = f"{pairing} v{judged.version}, no other pair beside it", None
        if champion is not None and champion.version != judged.version:
            incumbent = draft_of(champion)
            fits = incumbent != WITHOUT and compare(target, incumbent).ok
            said = f"{pairing} v{judged.version} beside its champion v{champion.version}"
            if not fits:
                incumbent, said = None, f"{said}, which has no draft for this release"
    print(f"measuring {said}", file=sys.stderr)  # for people; stdout is the machine's
    return Wanted(
        target,
        draft,
        incumbent,
        settings.path(line.evaluation_prompts),
        line,
        settings.serving,
        adapters_of(settings, line),
    )
