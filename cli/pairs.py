"""Commands that make pairs and choose among them: `retrain`, `promote`, `rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.home import DEFAULT_HOME, HomeFolder, PairingName, Registry, servers, settings_of
from cli.measuring import PHASES
from cli.output import Json, emit

if TYPE_CHECKING:
    from registry.promotion import Promotion
    from registry.versions import ReleaseVersion


def retrain(
    pairing: PairingName,
    release: Annotated[
        str | None,
        typer.Option(help="Version number or digest of the release; left out, the newest."),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Make the pair for a release: regenerate, distil, measure, judge, register, promote.

    What the watch flow does by itself for every new release. Whatever was finished before an
    interruption is not done again. Exit code 0 when the pair passed the gate, 1 when it failed, 3
    when the measurement could not tell; only a pair that passed is promoted.
    """
    settings = settings_of(home, registry)
    settings.pairing(pairing)
    with servers(settings, flows=True) as url:
        from registry.store import Store

        found = _release(Store(url).releases(pairing), release, pairing)
        from flows.retrain import retrain as flow

        outcome = flow(pairing, found.digest)
    emit({"pairing": pairing, "release": found.digest, **outcome}, str(outcome["statement"]))
    raise typer.Exit(PHASES[outcome["phase"]])


def promote(
    version: Annotated[int, typer.Argument(min=1, help="The pair's version number.")],
    pairing: PairingName,
    expect: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Only if this version is champion now (0: none is). Left out, whichever is.",
        ),
    ] = None,
    force: Annotated[
        str,
        typer.Option(
            metavar="REASON", help="Promote although the gate did not say PASS; the reason is kept."
        ),
    ] = "",
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Make a registered pair the champion, which servers of this pairing then swap to.

    Refused, with exit code 1 and nothing changed, when the pair did not pass the gate or when
    another champion came meanwhile.
    """
    settings = settings_of(home, registry)
    with servers(settings) as url:
        from registry.promotion import promote as move
        from registry.store import Store

        store = Store(url)
        champion = None if expect is not None else store.champion(pairing)
        now = champion.version if champion is not None else expect or None
        _tell(move(store, pairing, version, expect=now, force=force))


def rollback(
    pairing: PairingName,
    to: Annotated[
        int | None,
        typer.Option(min=1, help="The version to go back to; left out, the best earlier one."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Kept with the pair that is left.")] = "by hand",
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Go back to an earlier pair of the release that is serving.

    Never changes which release users get. Exit code 1, and nothing changed, where there is no pair
    to go back to.
    """
    settings = settings_of(home, registry)
    with servers(settings) as url:
        from registry.promotion import rollback as move
        from registry.store import Store

        _tell(move(Store(url), pairing, to=to, reason=reason))


def _tell(promotion: Promotion) -> None:
    emit(promotion, promotion.statement)
    if not promotion.ok:
        raise typer.Exit(Exit.NO)


def _release(releases: list[ReleaseVersion], wanted: str | None, pairing: str) -> ReleaseVersion:
    """The release of that version or digest, or the newest."""
    matching = [
        found
        for found in releases
        if wanted is None or str(found.version) == wanted or found.digest.startswith(wanted)
    ]
    if not matching or (wanted is not None and len(matching) > 1):
        known = ", ".join(f"{found.version} ({found.digest[:12]})" for found in releases)
        raise typer.BadParameter(
            f"got {wanted or 'none'}, wanted one of {known or 'the releases, and there is none'} "
            f"of {pairing}: announce one with `paceline release`",
            param_hint="--release",
        )
    return max(matching, key=lambda found: found.version)
