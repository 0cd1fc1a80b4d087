"""Reads one field of a request body, or refuses it: its name, what was got, what was wanted.

Pure. Knows JSON's kinds of values; nothing of what a field is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class BadRequest(ValueError):
    """A request that is refused. `parameter` names what is wrong with it, where one thing is."""

    def __init__(self, message: str, parameter: str | None = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.parameter, self.status = message, parameter, status


def text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    if value is not None and not isinstance(value, str):
        refuse(key, value, "text")
    return None if value is None else sound(value, key)


def boolean(said: Mapping[str, Any], key: str) -> bool:
    value = said.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        refuse(key, value, "true or false")
    return value


def whole(said: Mapping[str, Any], key: str, low: int, high: int) -> int | None:
    value = said.get(key)
    if value is None:
        return None
    if type(value) is not int or not low <= value <= high:
        refuse(key, value, f"a whole number of {low} to {high}")
    return value


def number(
    said: Mapping[str, Any], key: str, low: float, high: float, *, above: bool = False
) -> float | None:
    """A number from `low` to `high`; `above` leaves `low` itself out."""
    value = said.get(key)
    if value is None:
        return None
    wanted = (
        f"a number {'above' if above else 'of'} {low:g} {'and at most' if above else 'to'} {high:g}"
    )
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(key, value, wanted)
    if not low <= value <= high or (above and value == low):
        refuse(key, value, wanted)
    return float(value)


def refuse(key: str, value: object, wanted: str) -> NoReturn:
    got = kind(value) if isinstance(value, str | list | dict) else f"{value!r:.40}"
    raise BadRequest(f"{key}: got {got}, wanted {wanted}", key)


def sound(text: str, name: str) -> str:
    """Text that is text: JSON can write halves of surrogate pairs, which no encoding has."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRequest(
            f"{name} holds half a surrogate pair, which is no character", name
        ) from None
    return text


def kind(value: object) -> str:
    kinds = {str: "text", list: "list", dict: "object", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
