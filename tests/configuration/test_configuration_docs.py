"""docs/configuration.md has a row for every dial, with its default and why.

python -m tests.configuration.test_configuration_docs    # prints the tables as they are to be
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from configuration.reading import SECRETS
from configuration.settings import Settings
from configuration.writing import FROM_ELSEWHERE, comments, literal

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def tables(cls: type, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each table of the file with the rows of its own dials."""
    hints, why = get_type_hints(cls), comments(cls)
    inner: list[tuple[str, type]] = []
    rows = []
    for spec in fields(cls):
        hint, name = hints[spec.name], f"{key}.{spec.name}" if key else spec.name
        args = [one for one in get_args(hint) if isinstance(one, type) and is_dataclass(one)]
        if is_dataclass(hint) and isinstance(hint, type):
            inner.append((name, hint))
            continue
        if args:
            mapped = getattr(hint, "__origin__", None) is Mapping
            inner.append((f"{name}.NAME" if mapped else f"[{name}]", args[0]))
        if spec.name in why and spec.name not in FROM_ELSEWHERE:
            rows.append(f"| `{spec.name}` | {default(spec)} | {why[spec.name]} |")
    yield key, rows
    for name, held in inner:
        yield from tables(held, name)


def default(spec: Any) -> str:
    if spec.default_factory is not MISSING:
        return f"`{literal(spec.default_factory())}`"
    return "needed" if spec.default is MISSING else f"`{literal(spec.default)}`"


def rendered() -> str:
    text = []
    for key, rows in tables(Settings):
        if rows:
            text += [f"### `[{key}]`" if key else "### At the top", ""]
            text += ["| dial | default | |", "|---|---|---|", *rows, ""]
    return "\n".join(text)


def test_every_dial_is_there_with_its_default_and_why() -> None:
    text = DOCS.read_text()
    missing = [line for line in rendered().splitlines() if line and line not in text]
    assert missing == [], "print the tables anew (see above), and put them in their place"


def test_no_dial_is_there_that_is_none() -> None:
    named = set(re.findall(r"^\| `([a-z_]+)` \|", DOCS.read_text(), re.MULTILINE))
    assert named <= set(re.findall(r"^\| `([a-z_]+)` \|", rendered(), re.MULTILINE))


def test_every_secret_is_named() -> None:
    text = DOCS.read_text()
    assert [name for name in SECRETS if f"`PACELINE_{name.upper()}`" not in text] == []


if __name__ == "__main__":
    print(rendered())
