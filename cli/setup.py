"""The command `init`: a paceline.toml to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.home import DEFAULT_HOME, HomeFolder
from cli.output import Json, emit


def init(
    pairing: Annotated[str, typer.Argument(help="A name for the line, such as `support`.")],
    target: Annotated[
        Path,
        typer.Argument(help="The target's model folder, in Hugging Face form."),
    ],
    home: HomeFolder = DEFAULT_HOME,
    as_json: Json = False,
) -> None:
    """Write a paceline.toml with one pairing; every dial is shown with its default and its reason.

    A file that stands is never written over.
    """
    from configuration.reading import FILE
    from configuration.settings import Pairing, Settings
    from configuration.writing import write_default

    line = Pairing(target=str(target.absolute()))
    try:
        Settings(home=home, pairings={pairing: line})
    except ValueError as error:
        raise typer.BadParameter(f"{error}: choose another", param_hint="PAIRING") from error
    path = home / FILE
    written = write_default(path, {pairing: line})
    said = "written" if written else "stands already and was left as it is"
    emit({"path": path, "written": written}, f"{path}: {said}")
