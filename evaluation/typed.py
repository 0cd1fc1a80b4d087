"""Reads records from JSON by their annotations, so that a wrong type is told with its field.

Numbers are bounded: one that no measurement can hold would be an error of arithmetic much later.
What is read is what was stored: 1 stays 1 where a float is wanted, since a digest is of the text.
Knows annotations; knows nothing of reports.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

MOST = 2**53  # in size, of any number: beyond it a float cannot tell one whole number from the next
PLAIN = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


class TypedError(ValueError):
    """A value of another type than the record's field, or a field missing or unknown."""


def read(kind: Any, value: object, where: str = "") -> Any:
    """`value` as `kind`: a record, a tuple, a mapping of names, one of these or None, or plain.

    Raises TypedError that names the field, what was got and what was wanted.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (wanted,) = (each for each in inner if each is not NoneType)
        return None if value is None else read(wanted, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(where, value, "a list")
        return tuple(read(inner[0], each, f"{where}[{n}]") for n, each in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "an object")
        return {str(name): read(inner[1], each, f"{where}.{name}") for name, each in value.items()}
    wanted_types = (int, float) if kind is float else (kind,)
    if type(value) not in wanted_types:
        raise _wrong(where, value, PLAIN[kind])
    if kind in (int, float) and not (_finite(value) and abs(value) <= MOST):  # type: ignore[arg-type]
        raise _wrong(where, value, f"{PLAIN[kind]} from -{MOST} to {MOST}")
    return value


def _record(kind: type, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "an object")
    hints, needed = _hints(kind)
    if unknown := sorted(value.keys() - hints.keys()):
        raise TypedError(f"{_at(where, unknown[0])}: is no field of a {kind.__name__}")
    if missing := [name for name in needed if name not in value]:
        raise TypedError(f"{_at(where, missing[0])}: is missing")
    fields = {name: read(hints[name], each, _at(where, name)) for name, each in value.items()}
    try:
        return kind(**fields)
    except ValueError as error:
        raise TypedError(f"{where}: {error}") from error


@cache
def _hints(kind: type) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The types of a record's fields, and the names of those without a default."""
    hints, fields = get_type_hints(kind), dataclasses.fields(kind)
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    return {one.name: hints[one.name] for one in fields}, tuple(needed)


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _wrong(where: str, value: object, wanted: str) -> TypedError:
    return TypedError(f"{where}: got {_told(value)}, wanted {wanted}")


def _told(value: object) -> str:
    """A value for people, however long or deep it is."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) > MOST:
        return f"a whole number of {value.bit_length()} bits"
    return f"{value!r:.80}"
