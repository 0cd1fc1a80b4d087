"""Commands that make pairs and choose among them: `retrain`, `promote`, `rollback`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import Exit, exit_of
from cli.home import (
    DEFAULT_HOME,
    HomeFolder,
    PairingName,
    Registry,
    servers,
    settings_of,
    settings_of_existing,
    worded,
)
from cli.output import Json, Progress, emit, progress_bars
from evaluation.endpoints import ending

if TYPE_CHECKING:
    from registry.promotion import Promotion
    from registry.versions import ReleaseVersion

PROGRESS_SECONDS = 0.5  # between two looks at how far a flow is


def retrain(
    pairing: PairingName,
    release: Annotated[
        str | None,
        typer.Option(metavar="RELEASE", help="Its version number or digest; left out, the newest."),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Make the pair for a release: regenerate, distil, measure, judge, register, promote.

    What the watch flow does by itself for every new release. Whatever was finished before an
    interruption is not done again. Exit code 0 when the pair passed the gate and was promoted, 1
    when it failed or was not promoted for another reason, 3 when the measurement could not tell.
    """
    settings = settings_of(home, registry)
    line = settings.pairing(pairing)
    from configuration.prompts import read_pairing_prompts

    if line.draft == "head":  # read before any step takes its minutes
        read_pairing_prompts(settings.path(line.train_prompts), line.adapters)
    read_pairing_prompts(settings.path(line.evaluation_prompts), line.adapters)
    with servers(settings, flows=True) as there:
        from registry.store import Store

        found = _release(Store(there.registry).releases(pairing), release, pairing)
        with progress_bars() as progress, following(settings.home, pairing, found, progress):
            outcome = _retrained(settings.home, pairing, found.digest, there.check)
    emit({"pairing": pairing, "release": found.digest, **outcome}, str(outcome["statement"]))
    raise typer.Exit(exit_of(outcome["phase"], outcome["promoted"]))


def promote(
    version: Annotated[
        int, typer.Argument(min=1, metavar="VERSION", help="The pair's version number.")
    ],
    pairing: PairingName,
    expect: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Only if this version is champion now (0: none is). Left out, the one that the "
            "pair was judged against.",
        ),
    ] = None,
    force: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Promote although the gate did not say PASS; the reason is kept.",
            callback=worded,
        ),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Make a registered pair the champion, which servers of this pairing then swap to.

    Refused, with exit code 1 and nothing changed, when the pair did not pass the gate or when
    another champion came since it was judged. With --force, whichever is champion is replaced.
    """
    settings = settings_of_existing(home, registry)
    with servers(settings) as there:
        from registry.expecting import expected
        from registry.promotion import promote as move
        from registry.store import Store

        store = Store(there.registry)
        store.check_ours(pairing)
        why = force or ""
        found = expected(store, pairing, version, force=why) if expect is None else expect
        _tell(move(store, pairing, version, expect=found or None, force=why, by_hand=True))


def rollback(
    pairing: PairingName,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The version to go back to, or `ngram` or `none`, drafts that need no making; "
            "left out, the best earlier one.",
        ),
    ] = None,
    reason: Annotated[
        str,
        typer.Option(metavar="REASON", help="Kept with the pair that is left.", callback=worded),
    ] = "by hand",
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Go back to an earlier pair of the release that is serving.

    Never changes which release users get. Exit code 1, and nothing changed, where there is no pair
    to go back to.
    """
    if not (to in (None, "ngram", "none") or (to.isdecimal() and to.isascii() and int(to) > 0)):
        raise typer.BadParameter(
            f"got {to!r}, wanted a version's number, ngram or none", param_hint="--to"
        )
    settings = settings_of_existing(home, registry)
    with servers(settings) as there:
        from registry.promotion import rollback as move
        from registry.standing_in import fall_back
        from registry.store import Store

        store = Store(there.registry)
        store.check_ours(pairing)
        if to in ("ngram", "none"):
            _tell(fall_back(store, pairing, to, reason=reason))
        else:
            _tell(move(store, pairing, to=None if to is None else int(to), reason=reason))


def _retrained(home: Path, pairing: str, release: str, check: Callable[[], None]) -> dict[str, Any]:
    """The flow's outcome. It runs in a process of its own, which ends where a server is gone."""
    from cli.supervised import relayed, supervised
    from flows.steps import read_json

    (home / "run").mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home / "run", prefix="retrain-") as folder:
        out = Path(folder) / "outcome.json"
        argv = [sys.executable, "-m", "flows.single", pairing, release, str(out)]
        with relayed() as output:
            code = supervised(argv, output, check=check)
        told = read_json(out)
    if told is None:
        raise RuntimeError(
            f"the retrain of {pairing} {ending(code)}: its own words are above, and the same "
            "command goes on from the last finished step"
        )
    if "error" in told:
        raise RuntimeError(told["error"]) if told["fault"] else ValueError(told["error"])
    return dict(told["outcome"])


@contextmanager
def following(
    home: Path, pairing: str, release: ReleaseVersion, progress: Progress
) -> Iterator[None]:
    """Draw how far the flow is that this process runs: its steps say so in a file."""
    from flows.line import work_folder
    from flows.steps import PROGRESS, read_json

    file = work_folder(home, pairing, release.digest) / PROGRESS
    ended = threading.Event()

    def follow() -> None:
        shown = (read_json(file) or {}).get("updated")  # an earlier run's last word
        while not ended.wait(PROGRESS_SECONDS):
            now = read_json(file)
            if now is not None and now["updated"] != shown:
                shown = now["updated"]
                progress(int(now["done"]), int(now["total"]), str(now["step"]))

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
