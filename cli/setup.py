"""The command `init`: a paceline.toml to start from, or one more pairing in the one that stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.home import DEFAULT_HOME, HomeFolder
from cli.output import Json, emit


def init(
    pairing: Annotated[
        str, typer.Argument(metavar="NAME", help="The new pairing's name, such as `support`.")
    ],
    target: Annotated[
        Path,
        typer.Argument(help="The target's model folder, in Hugging Face form.", metavar="TARGET"),
    ],
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Write a paceline.toml with one pairing; every dial is shown with its default and its reason.

    A file that stands is kept as it is: a pairing that it does not have is added at its end, and
    one that it has for another target is refused.
    """
    from configuration.reading import FILE, read_settings
    from configuration.settings import Pairing, Settings
    from configuration.writing import append_pairing, write_default

    if not target.is_dir():
        raise typer.BadParameter(
            f"got {target}, which is no folder, wanted a model folder in Hugging Face form: "
            "check the path, or fetch a model of the hub first, for example with "
            "`hf download NAME --local-dir FOLDER`",
            param_hint="TARGET",
        )
    line = Pairing(target=str(target.absolute()))
    try:
        Settings(home=home, pairings={pairing: line})
    except ValueError as error:
        raise typer.BadParameter(f"{error}: choose another", param_hint="NAME") from error
    path = home / FILE
    written = write_default(path, {pairing: line})
    said = "written"
    if not written:
        standing = read_settings(home, environ={})  # the file alone, and all of it right
        before = standing.pairings.get(pairing)
        if before is None:
            written, said = append_pairing(path, pairing, line), f"pairing {pairing} added"
        elif before.target and standing.path(before.target).resolve() == target.resolve():
            said = "stands already and was left as it is"
        else:
            raise typer.BadParameter(
                f"got {pairing}, which {path} has for the target {before.target or '(none)'}: "
                "choose another name, or change that table by hand",
                param_hint="NAME",
            )
    emit({"path": path, "written": written}, f"{path}: {said}")
