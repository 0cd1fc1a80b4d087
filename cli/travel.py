"""Commands that take pairs out of the registry and bring drafts in: `export`, `import`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.home import (
    DEFAULT_HOME,
    HomeFolder,
    PairingName,
    Registry,
    servers,
    settings_of,
    settings_of_existing,
    sound_name,
)
from cli.models import Target
from cli.output import Json, emit

if TYPE_CHECKING:
    from registry.versions import PairVersion

LAYOUTS = ("huggingface", "speculators")


def known_layout(layout: str) -> str:
    """Raises typer.BadParameter for a layout that is not written here."""
    if layout not in LAYOUTS:
        raise typer.BadParameter(f"got {layout}, wanted one of {', '.join(LAYOUTS)}")
    return layout


def export(
    pairing: PairingName,
    into: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder to write.")],
    version: Annotated[
        str,
        typer.Option(metavar="VERSION", help="A version number, or champion, candidate, previous."),
    ] = "champion",
    layout: Annotated[
        str,
        typer.Option(
            metavar="LAYOUT",
            help="huggingface, or speculators for a head that vLLM and its trainers read.",
            callback=known_layout,
        ),
    ] = "huggingface",
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="What speculators calls the target: a hub's name or a folder."
        ),
    ] = "",
    draft_len: Annotated[
        int, typer.Option(help="Tokens that it proposes a round, for speculators.", min=1)
    ] = 4,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Write a registered pair as a folder that others can use, pair.json inside.

    Every file is compared with its digest first. What the layout has no place for is said. The
    target's weights are not part of a pair, and stay where they are.
    """
    settings = settings_of_existing(home, registry)
    with servers(settings) as there, tempfile.TemporaryDirectory() as folder:
        from registry.errors import FolderError
        from registry.exporting import export_pair
        from registry.fetching import fetch_files
        from registry.store import Store

        store = Store(there.registry)
        store.check_ours(pairing)
        pair = store.pair(pairing, int(version) if version.isdecimal() else version)
        if pair is None:
            raise typer.BadParameter(
                f"got {version}, which {pairing} has not", param_hint="VERSION"
            )
        files = fetch_files(store, pair, Path(folder))
        try:
            carried = export_pair(files, into, layout=layout, target=target, draft_len=draft_len)
        except FolderError as error:  # it names where the pair was fetched to, which is gone by now
            said = str(error).replace(str(files), f"{pairing} v{pair.version}")
            raise FolderError(said) from error
    emit(
        {"pairing": pairing, "version": pair.version, "pair": pair.pair_id, "folder": into}
        | {"layout": layout, "left": carried.left},
        [
            f"{pairing} v{pair.version} ({pair.pair_id}) is in {into}",
            *(f"  not carried: {what}" for what in carried.left),
        ],
    )


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="An exported pair, a draft's folder, or a head in the speculators layout.",
            exists=True,
            file_okay=False,
        ),
    ],
    into: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder to write.")],
    target: Target,
    pairing: Annotated[
        str | None,
        typer.Option(
            "--pairing",
            metavar="NAME",
            help="Also register the pair with this pairing, unjudged; it needs a pair.json.",
            callback=lambda name: name and sound_name(name),
        ),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Make of a folder from elsewhere one that is served here, and say whether it fits TARGET.

    With a pair.json every file is compared with its digest, and the pair must be of exactly this
    release. Without one it is a draft that nothing is known of: measure it with `paceline
    evaluate`, or name it as a pairing's `initial_draft`, which measures, judges and registers it.
    Exit code 1 where it does not fit; the folder is written all the same, and nothing registered.
    A verdict does not travel: other machines have other speeds, and other gates other rules.
    """
    if pairing is not None and not (source / "pair.json").is_file():
        raise typer.BadParameter(
            f"{source} has no pair.json: a draft that was judged on nothing is no pair. Name it as "
            "the pairing's initial_draft",
            param_hint="--pairing",
        )
    from registry.errors import DigestError
    from registry.exporting import import_pair
    from registry.manifest import FILE

    try:
        carried, answer = import_pair(source, into, target=target)
    except DigestError as error:  # of a folder that somebody else made: no fault of this host
        raise ValueError(str(error)) from error
    judged = (into / FILE).is_file()
    holds = "a pair with its manifest" if judged else "a draft that was judged on nothing"
    kept = None
    if pairing is not None and answer.ok:
        settings = settings_of(home, registry)
        with servers(settings) as there:
            from registry.exporting import register_imported
            from registry.store import Store

            kept = register_imported(Store(there.registry), pairing, into, source=source)
    version = None if kept is None else kept.version
    emit(
        {"folder": into, "pair": judged, "left": carried.left, "version": version}
        | {"ok": answer.ok, "reasons": answer.reasons, "notes": answer.notes},
        [
            f"{into} holds {holds}",
            *(f"  not carried: {what}" for what in carried.left),
            *([] if kept is None else [_registered(kept)]),
            f"{'compatible' if answer.ok else 'NOT compatible'} with {target}",
            *(f"  because {reason}" for reason in answer.reasons),
            *(f"  note: {note}" for note in answer.notes),
        ],
    )
    if not answer.ok:
        raise typer.Exit(Exit.NO)


def _registered(pair: PairVersion) -> str:
    """With its report it may have been there before: no verdict comes from an import."""
    from registry.versions import UNJUDGED

    named = f"{pair.pairing} v{pair.version}"
    if pair.verdict == UNJUDGED:
        return f"registered as {named}, unjudged"
    return f"it is {named} already, with the verdict {pair.verdict}"
