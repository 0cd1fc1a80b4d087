"""Commands about model folders: `fingerprint`, `check`, `release`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.home import DEFAULT_HOME, HomeFolder, PairingName, Registry, servers, settings_of
from cli.output import Json, emit, progress_bars
from configuration.settings import Settings

if TYPE_CHECKING:
    from registry.cache import DigestCache
    from registry.fingerprint import Draft, Release

Target = Annotated[
    Path,
    typer.Argument(
        help="A model folder in Hugging Face form.", exists=True, file_okay=False, metavar="TARGET"
    ),
]
Adapter = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A LoRA adapter's folder on top of the target.",
        exists=True,
        file_okay=False,
    ),
]


def known_draft(draft: str | None) -> str | None:
    """The draft that a command line names. Raises typer.BadParameter for one that cannot be."""
    if draft is None or draft in ("ngram", "none") or Path(draft).is_dir():
        return draft
    raise typer.BadParameter(
        f"got {draft}, which is no folder, wanted `ngram`, `none` or a draft's folder"
    )


def measured_draft(draft: str | None) -> str | None:
    """The same where plain decoding is measured beside it anyway. Raises typer.BadParameter."""
    if draft == "none":
        raise typer.BadParameter(
            "got none, which is measured beside every draft, wanted `ngram` or a draft's folder"
        )
    return known_draft(draft)


def fingerprint(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A model, a draft head or an exported pair.",
            exists=True,
            file_okay=False,
            metavar="DIR",
        ),
    ],
    adapter: Adapter = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Another folder: say which parts differ; exit code 1 where any does.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="Believe digests of files that look as they did before."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what a model folder is: one digest of its content, and one for each of its parts.

    Renaming the folder or re-sharding the weights changes nothing; a changed value, token, chat
    template or generation default changes the digest of that part.
    """
    from registry.configs import holds_head
    from registry.fingerprint import difference, fingerprint_draft
    from registry.fingerprint import fingerprint as taken

    cache = digest_cache(os.environ) if cached else None
    head = holds_head(folder)
    if head and (adapter is not None or against is not None):
        raise typer.BadParameter(f"{folder} is a draft head, wanted a model for this option")
    with progress_bars() as progress:
        if head:
            draft = fingerprint_draft(folder, progress=progress)
            emit(draft, [f"draft          {draft.digest}", _facts(draft)])
            return
        release = taken(folder, adapter=adapter, progress=progress, cache=cache)
        other = None if against is None else taken(against, progress=progress, cache=cache)
    lines = [
        f"release        {release.digest}",
        f"  weights      {release.weights}",
        f"  adapter      {release.adapter or 'none'}",
        f"  tokenizer    {release.tokenizer}",
        f"  template     {release.chat_template}",
        f"  generation   {release.generation}",
        f"  config       {release.configuration}",
        f"{_facts(release)}, context {release.context_configured}",
    ]
    if other is None:
        emit(release, lines)
        return
    differs = difference(other, release)
    record = {"release": release, "against": other, "difference": differs}
    emit(record, [*lines, f"against {other.digest}: {differs}"])
    if other.digest != release.digest:
        raise typer.Exit(Exit.NO)


def _facts(what: Release | Draft) -> str:
    return (
        f"{what.architecture}, {what.parameters:,} parameters, {what.dtype}, "
        f"{what.quantization or 'not quantized'}"
    )


def digest_cache(environ: Mapping[str, str]) -> DigestCache:
    """The user's own cache of digests: for looking again, never for registering."""
    from registry.cache import DigestCache

    place = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return DigestCache(Path(place) / "paceline" / "digests.json")


def check(
    target: Target,
    draft: Annotated[
        str,
        typer.Argument(
            metavar="DRAFT",
            help="A draft's or a pair's folder, or `ngram` or `none`.",
            callback=known_draft,
        ),
    ],
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR", help="A LoRA adapter that the target is served with; repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether a draft can serve a target: the same tokens by content, context, shapes.

    A folder with a pair.json is also held to it: the release it was validated for, the draft it
    binds, the adapters it was judged with. Exit code 0 when it can, 1 when it cannot, with every
    reason. It says nothing of how well the draft does: `paceline evaluate` measures that.
    """
    from cli.servers import folders, named
    from registry.checking import check as checked

    adapters = folders(named(adapter or (), "--adapter", "NAME=DIR, such as law=adapters/law"))
    with progress_bars() as progress:
        answer = checked(target, draft, adapters=adapters, progress=progress)
    lines = ["compatible" if answer.ok else "NOT compatible"]
    lines += [f"  because {reason}" for reason in answer.reasons]
    lines += [f"  note: {note}" for note in answer.notes]
    emit(answer, lines)
    if not answer.ok:
        raise typer.Exit(Exit.NO)


def release(
    pairing: PairingName,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET",
            help="The released model folder; left out, the pairing's own `target`.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            metavar="MODELS:/NAME/VERSION",
            help="The version of this MLflow that TARGET was downloaded from, to be linked.",
        ),
    ] = "",
    adapter: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A LoRA adapter of TARGET: the two together are the release, merged in the home.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    registry: Registry = None,
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Announce a new release of a pairing's target: fingerprint the folder and register it.

    The watch flow sees it, and makes, measures and judges the pair for it. Announcing the same
    content again changes nothing. The weights stay where they are, so keep the folder as it is.
    """
    from registry.fingerprint import fingerprint as taken

    settings = settings_of(home, registry)
    if settings.pairings:
        settings.pairing(pairing)  # a mistyped one would be a line of its own
    folder = (_released(settings, pairing) if target is None else target).resolve()
    with progress_bars() as progress:
        found = taken(folder, adapter=adapter, progress=progress)
    if adapter is not None:
        folder = _merged(settings, pairing, folder, adapter, found.digest)
    with servers(settings) as there:
        from registry.store import Store

        version = Store(there.registry).register_release(pairing, folder, found, source=source)
    emit(
        {
            "pairing": pairing,
            "version": version.version,
            "release": found.digest,
            "target": folder,
        },
        f"{pairing}: {folder} is release {version.version} ({found.digest[:12]})"
        + ("" if version.uri == str(folder) else f", which stays at {version.uri}"),
    )


def _merged(settings: Settings, pairing: str, base: Path, adapter: Path, digest: str) -> Path:
    """The folder that a server can load of a base with an adapter, in the home."""
    from registry.adapters import adapter_fits
    from registry.errors import IncompatibleError

    fits = adapter_fits(base, adapter)
    if not fits.ok:
        raise IncompatibleError(f"{adapter}: does not fit {base}: {'; '.join(fits.reasons)}")
    from training.adapter import merge

    return merge(base, adapter, (settings.home / "releases" / pairing / digest[:16]).resolve())


def _released(settings: Settings, pairing: str) -> Path:
    """The target folder that the pairing configures."""
    configured = settings.pairing(pairing).target
    folder = settings.path(configured)
    if not configured or not folder.is_dir():
        got = f"{folder}, which is no folder" if configured else "no target for this pairing"
        raise typer.BadParameter(f"{got}: name the released model folder", param_hint="TARGET")
    return folder
