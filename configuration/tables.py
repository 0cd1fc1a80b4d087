"""Turns a table, as TOML or JSON holds it, into a frozen record, collecting every fault.

The record's own type hints are the schema; a rule over several fields is the record's own
`__post_init__`, whose ValueError becomes a fault of the whole table. Knows no record by name.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from configuration.faults import Fault

Record = TypeVar("Record")
WRONG = object()  # what a value with a fault turns into


def to_record(
    cls: type[Record],
    table: Mapping[str, Any],
    *,
    key: str,
    faults: list[Fault],
    fixed: Mapping[str, Any] | None = None,
) -> Record | None:
    """`cls` from `table`, or None with what is wrong added to `faults`.

    `key` is the table's dotted name, "" for the whole file; `fixed` are fields that no table
    may set.
    """
    fixed = fixed or {}
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls) if f.name not in fixed}  # type: ignore[arg-type] # a dataclass, by contract
    before = len(faults)
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            do = f"did you mean {near[0]}?" if near else "remove it"
            faults.append(Fault(_join(key, name), "an unknown key", _list(known), do))
    values: dict[str, Any] = dict(fixed)
    for name, spec in known.items():
        if name in table:
            value = to_value(hints[name], table[name], key=_join(key, name), faults=faults)
            values[name] = value
        elif spec.default is MISSING and spec.default_factory is MISSING:
            faults.append(Fault(_join(key, name), "nothing", name_of(hints[name]), "set it"))
    if len(faults) > before:
        return None
    try:
        return cls(**values)
    except (ValueError, TypeError) as error:
        faults += _rules(cls, values, [n for n in table if n in known], key, str(error))
        return None


def _rules(
    cls: type[Any], values: Mapping[str, Any], given: list[str], key: str, whole: str
) -> list[Fault]:
    """Which of the given values a record refuses, each tried among defaults; else all together."""
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    found = []
    for name in given:
        try:
            cls(**{needs: values[needs] for needs in {*needed, name}})
        except (ValueError, TypeError) as error:
            found.append(
                Fault(_join(key, name), repr(values[name]), _wanted(str(error)), "change it")
            )
    got = whole.removeprefix("got ").partition(", wanted ")[0]
    return found or [Fault(key or "the file", got, _wanted(whole), "change it")]


def _wanted(message: str) -> str:
    """What a record's own rule asks for, out of the sentence it raised."""
    for before in ("wanted ", "it must be "):
        if before in message:
            return message.partition(before)[2]
    return f"values that agree ({message})"


def to_value(hint: Any, value: Any, *, key: str, faults: list[Fault]) -> Any:
    """`value` as `hint` wants it, or WRONG with the reason added to `faults`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):  # only `X | None` is used; TOML has no null
        (inner,) = (arg for arg in args if arg is not type(None))
        return None if value is None else to_value(inner, value, key=key, faults=faults)
    if is_dataclass(hint) and isinstance(value, Mapping):
        return to_record(hint, value, key=key, faults=faults)  # type: ignore[arg-type] # a class: it came from a hint
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            return {
                name: to_value(args[1], inner, key=_join(key, name), faults=faults)
                for name, inner in value.items()
            }
    elif origin is tuple and isinstance(value, list):
        return tuple(
            to_value(args[0], inner, key=f"{key}[{index}]", faults=faults)
            for index, inner in enumerate(value)
        )
    elif (origin is Literal and value in args and isinstance(value, type(args[0]))) or (
        hint in (str, bool, int) and type(value) is hint
    ):
        return value
    elif hint is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    elif hint is Path and isinstance(value, str) and value:
        return Path(value)
    got = "a table" if isinstance(value, Mapping) else f"{value!r}"
    faults.append(Fault(key, got, name_of(hint), "change it, or remove it for the default"))
    return WRONG


def name_of(hint: Any) -> str:
    """A type in a user's words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(arg) for arg in args)
    if origin in (Union, types.UnionType):
        return name_of(args[0])
    if origin is tuple:
        return f"a list, each {name_of(args[0])}"
    if is_dataclass(hint) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return "a table"
    words = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
    return words.get(hint, "a path" if hint is Path else str(hint))


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _list(names: Mapping[str, Any]) -> str:
    return "one of " + ", ".join(names)
