"""The command `init`: a paceline.toml to start from, or one more pairing in the one that stands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.home import DEFAULT_HOME, HomeFolder
from cli.output import Json, emit

if TYPE_CHECKING:
    from configuration.sources import Source

KINDS = ("mlflow", "folder", "store", "hub")


def init(
    pairing: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The new pairing's name, such as `support`."),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET",
            help="The target's model folder, in Hugging Face form; not needed with --from.",
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="KIND:PLACE",
            help="Where releases come from: mlflow:NAME[@ALIAS], folder:PATH, store:s3://…, or "
            "hub:OWNER/NAME[@REVISION]; repeatable.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A server that serves it; repeatable."),
    ] = None,
    on_release: Annotated[
        Literal["with_pair", "at_once"], typer.Option(help="What a release waits for: its draft?")
    ] = "with_pair",
    approval: Annotated[
        Literal["automatic", "person"], typer.Option(help="Who promotes a pair that passed.")
    ] = "automatic",
    registry: Annotated[
        str, typer.Option(metavar="URL", help="Your MLflow; left out, the home's own.")
    ] = "",
    prefect: Annotated[
        str, typer.Option(metavar="URL", help="Your Prefect's API; left out, the home's own.")
    ] = "",
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Write a paceline.toml with one pairing; every dial is shown with its default and its reason.

    On a terminal it asks for a name and a target that were left out. A file that stands is kept as
    it is: a pairing that it does not have is added at its end, and one that it has for another
    target is refused.
    """
    from configuration.limits import Limits
    from configuration.reading import FILE, read_settings
    from configuration.settings import Pairing, Settings
    from configuration.writing import append_pairing, write_default

    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    if pairing is None:
        pairing = _asked("The pairing's name, such as support", "NAME", asks=asks)
    found = tuple(_source(one) for one in sources or ())
    if target is None and not found:
        target = Path(_asked("The target's model folder", "TARGET", asks=asks)).expanduser()
    if target is not None and not target.is_dir():
        raise typer.BadParameter(
            f"got {target}, which is no folder, wanted a model folder in Hugging Face form: "
            "check the path, or fetch a model of the hub first, for example with "
            "`hf download NAME --local-dir FOLDER`",
            param_hint="TARGET",
        )
    try:
        line = Pairing(
            target="" if target is None else str(target.absolute()),
            on_release=on_release,
            sources=found,
            servers=tuple(server or ()),
            limits=Limits(approval=approval),
        )
        Settings(home=home, registry=registry, prefect=prefect, pairings={pairing: line})
    except ValueError as error:
        raise typer.BadParameter(f"{error}: choose another") from error
    path = home / FILE
    written = write_default(path, {pairing: line}, registry=registry, prefect=prefect)
    said = "written"
    if not written:
        standing = read_settings(home, environ={})  # the file alone, and all of it right
        for name, given in (("registry", registry), ("prefect", prefect)):
            if given and given != getattr(standing, name):
                raise typer.BadParameter(
                    f"got {given}, and {path} stands already: write it there as `{name}`",
                    param_hint=f"--{name}",
                )
        before = standing.pairings.get(pairing)
        if before is None:
            written, said = append_pairing(path, pairing, line), f"pairing {pairing} added"
        elif target is not None and _same(standing, before.target, target):
            said = "stands already and was left as it is"
        else:
            raise typer.BadParameter(
                f"got {pairing}, which {path} has for the target {before.target or '(none)'}: "
                "choose another name, or change that table by hand",
                param_hint="NAME",
            )
    emit({"path": path, "written": written}, f"{path}: {said}")


def _asked(question: str, name: str, *, asks: bool) -> str:
    if not asks:
        raise typer.BadParameter("got nothing, wanted it", param_hint=name)
    return str(typer.prompt(question)).strip()


def _source(text: str) -> Source:
    """The source of KIND:PLACE. Raises typer.BadParameter."""
    from configuration.sources import Source

    kind, _, place = text.partition(":")
    follows = ""
    if kind in ("mlflow", "hub"):
        place, _, follows = place.partition("@")
    dials = {"alias" if kind == "mlflow" else "revision": follows} if follows else {}
    try:
        if kind not in KINDS:
            raise ValueError(f"got the kind {kind!r}, wanted one of {', '.join(KINDS)}")
        if kind == "folder":
            place = str(Path(place).expanduser().absolute())
        return Source(kind, place, **dials)  # type: ignore[arg-type] # one of KINDS
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}", param_hint="--from") from error


def _same(standing: object, before: str, target: Path) -> bool:
    from configuration.settings import Settings

    assert isinstance(standing, Settings)
    return bool(before) and standing.path(before).resolve() == target.resolve()
