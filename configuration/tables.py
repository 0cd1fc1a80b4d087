"""Turns a table, as TOML or JSON holds it, into a frozen record, collecting every fault.

The record's own type hints are the schema, and its `__post_init__` holds the rules: a value that it
refuses by itself is a fault of that value, values that it refuses together of the whole table. One
that is wrong hides no fault of another. Knows no record by name.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from configuration.faults import Fault
from registry.addresses import sayable

Record = TypeVar("Record")
WRONG = object()  # what a value with a fault turns into


@dataclass(frozen=True, slots=True)
class Words:
    """Which names a table of tables may have."""

    pattern: re.Pattern[str]
    wanted: str  # the same for people


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
    hints = get_type_hints(cls, include_extras=True)
    known = {f.name: f for f in fields(cls) if f.name not in fixed}  # type: ignore[arg-type] # a dataclass, by contract
    before = len(faults)
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            do = f"did you mean {near[0]}?" if near else "remove it"
            faults.append(Fault(_join(key, name), "an unknown key", _list(known), do))
    given: dict[str, Any] = {}  # what has the type it should have
    for name, spec in known.items():
        earlier = len(faults)
        if name in table:
            value = to_value(hints[name], table[name], key=_join(key, name), faults=faults)
            if len(faults) == earlier:
                given[name] = value
        elif _needed(spec):
            faults.append(Fault(_join(key, name), "nothing", name_of(hints[name]), "set it"))
    typed = len(faults) == before
    if not {f.name for f in known.values() if _needed(f)} <= set(given):
        return None  # no rule can be asked without them
    made, found = _checked(cls, fixed, given, whole=typed)
    for name, why in found.items():
        if name:
            faults.append(Fault(_join(key, name), _got(given[name]), _wanted(why), "change it"))
        else:
            got = why.removeprefix("got ").partition(", wanted ")[0]
            faults.append(Fault(key or "the file", got, _wanted(why), "change it"))
    return made if len(faults) == before else None


def _checked(
    cls: type[Record], fixed: Mapping[str, Any], given: Mapping[str, Any], *, whole: bool
) -> tuple[Record | None, dict[str, str]]:
    """The record of these values, or why it refuses each that is wrong; under "" why it refuses
    those that are right together, asked only where `whole` says that none is missing."""

    def refused(values: Mapping[str, Any]) -> str | None:
        try:
            cls(**fixed, **values)
        except (ValueError, TypeError) as error:
            return str(error)
        return None

    if (together := refused(given)) is None:
        return cls(**fixed, **given), {}
    needed = {f.name for f in fields(cls) if _needed(f) and f.name in given}  # type: ignore[arg-type] # a dataclass, by contract
    if len(needed) > 1 and (disagree := refused({n: given[n] for n in needed})) is not None:
        return None, {"": disagree}  # none of them can be asked without the others
    # a table of its own is right by itself: what refuses it is a rule about several values
    alone = {
        name: None if is_dataclass(value) else refused({n: given[n] for n in {*needed, name}})
        for name, value in given.items()
    }
    right = {name: value for name, value in given.items() if alone[name] is None}
    # a value may be wrong beside a default and right beside what was given
    wrong = {
        name: why
        for name, why in alone.items()
        if why is not None and refused({**right, name: given[name]}) is not None
    }
    if not wrong and whole:
        wrong = {"": together}
    return None, wrong


def _needed(spec: Field[Any]) -> bool:
    return spec.default is MISSING and spec.default_factory is MISSING


def _got(value: Any) -> str:
    """A value as it may be shown: addresses without the passwords that they may hold."""
    return repr(_shown(value))


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return sayable(value) if "://" in value else value
    if isinstance(value, (list, tuple)):
        return [_shown(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _shown(one) for name, one in value.items()}
    return value


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
            for name in value:
                _check_name(args[0], name, key=_join(key, name), faults=faults)
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
    got = "a table" if isinstance(value, Mapping) else _got(value)
    faults.append(Fault(key, got, name_of(hint), "change it, or remove it for the default"))
    return WRONG


def _check_name(hint: Any, name: str, *, key: str, faults: list[Fault]) -> None:
    """Whether a table's name is what its `Annotated[str, Words]` asks for."""
    for words in getattr(hint, "__metadata__", ()):
        if isinstance(words, Words) and not words.pattern.fullmatch(name):
            faults.append(Fault(key, f"the name {name!r}", words.wanted, "rename that table"))


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
