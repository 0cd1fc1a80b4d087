"""`PACELINE_…` variables: overrides of single dials, and secrets.

`PACELINE_PAIRINGS__DOCSTRINGS__DRAFT_LEN=6` is `draft_len = 6` under `[pairings.docstrings]`: two
underscores go one table down. Knows the schema through type hints; reads no process environment of
its own, it is handed one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

from configuration.faults import Fault

PREFIX = "PACELINE_"
ELSEWHERE = ("HOME", "DEBUG")  # read by the command line itself


def overlay(
    table: Mapping[str, Any],
    schema: type,
    environ: Mapping[str, str],
    *,
    secrets: tuple[str, ...],
    faults: list[Fault],
) -> dict[str, Any]:
    """`table` with every `PACELINE_…` dial of `environ` laid over it."""
    merged = _copy(table)
    elsewhere = {*ELSEWHERE, *(s.upper() for s in secrets), *(s.upper() + "_FILE" for s in secrets)}
    for variable in sorted(environ):
        rest = variable.removeprefix(PREFIX)
        if rest == variable or rest in elsewhere:
            continue
        _lay(merged, schema, rest.split("__"), variable, environ[variable], faults, elsewhere)
    return merged


def read_secret(name: str, environ: Mapping[str, str], *, faults: list[Fault]) -> str | None:
    """A secret from `PACELINE_NAME`, or from the file that `PACELINE_NAME_FILE` names."""
    variable = PREFIX + name.upper()
    value, file = environ.get(variable), environ.get(variable + "_FILE")
    if value and file:
        got = f"{variable} as well"
        faults.append(Fault(variable + "_FILE", got, "one of the two", "unset one"))
    elif file:
        try:
            value = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            faults.append(
                Fault(variable + "_FILE", f"{file}: {reason}", "a readable file", "check")
            )
            return None
        if not value:
            faults.append(Fault(variable + "_FILE", f"{file}: empty", "a secret in it", "fill it"))
    return value or None


def _lay(
    table: dict[str, Any],
    schema: Any,
    segments: list[str],
    variable: str,
    raw: str,
    faults: list[Fault],
    elsewhere: set[str],
) -> None:
    root, dials = table, schema
    for depth, segment in enumerate(segments):
        if is_dataclass(schema) and isinstance(schema, type):
            hints = get_type_hints(schema)
            name = segment.lower()
        else:  # a table of tables, by name
            hints = {}
            name = next((known for known in table if _variable(known) == segment), segment.lower())
        if hints and name not in hints or not segment:
            known = [*_dials(root, dials, PREFIX), *(PREFIX + e for e in elsewhere)]
            near = get_close_matches(variable, known, n=1)
            do = f"did you mean {near[0]}?" if near else "unset it"
            faults.append(Fault(variable, "an unknown variable", "a dial's name", do))
            return
        schema = hints[name] if hints else get_args(schema)[1]
        if _is_records(schema):
            got, do = "a list of tables, which no variable holds", "write it in the file, and unset"
            faults.append(Fault(variable, got, "a single dial's name", do))
            return
        nested = is_dataclass(schema) or bool(get_args(schema)) and _is_mapping(schema)
        last = depth == len(segments) - 1
        if nested == last:
            got = "a table's name" if last else f"{segment} taken for a table"
            faults.append(Fault(variable, got, "a single dial's name", "go down with __, or unset"))
            return
        if last:
            table[name] = _value(schema, raw)
        elif not isinstance(table.get(name), dict):
            if name in table:
                return  # the file holds no table there: a fault of its own
            table[name] = {}
        if not last:
            table = table[name]


def _dials(table: Any, schema: Any, before: str) -> Iterator[str]:
    """The variables of all single dials, however deep; of a table of tables, of those it has."""
    inner = table if isinstance(table, Mapping) else {}
    if is_dataclass(schema) and isinstance(schema, type):
        hints = get_type_hints(schema)
    elif get_args(schema) and _is_mapping(schema):
        hints = dict.fromkeys(inner, get_args(schema)[1])
    else:
        yield before.removesuffix("__")
        return
    for name, hint in hints.items():
        if _is_records(hint):
            continue
        yield from _dials(inner.get(name), hint, f"{before}{_variable(name)}__")


def _value(hint: Any, raw: str) -> Any:
    if hint in (str, Path):
        return raw
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw  # a bare word; the schema says whether that is right


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _is_mapping(hint: Any) -> bool:
    return getattr(hint, "__origin__", None) is Mapping


def _is_records(hint: Any) -> bool:
    """Whether this is a list of tables, as `[[…]]` writes it."""
    return getattr(hint, "__origin__", None) is tuple and is_dataclass(get_args(hint)[0])


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in table.items()}
