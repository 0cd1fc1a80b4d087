"""The kinds of values in a request body: each is read, or refused by name, and described.

Pure. Knows JSON's kinds of values and JSON Schema's words for them; nothing of what a field is for.
A reader and its description stand side by side, so that the OpenAPI document says what is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

Schema = dict[str, Any]


class BadRequest(ValueError):
    """A request that is refused. `parameter` names what is wrong with it, where one thing is."""

    def __init__(
        self,
        message: str,
        parameter: str | None = None,
        *,
        status: int = 400,
        code: str | None = None,  # for programs; None is what is usual
    ) -> None:
        super().__init__(message)
        self.message, self.parameter, self.status = message, parameter, status
        self.code = code or ("invalid_value" if parameter and status == 400 else None)


class Parameter(Protocol):
    """One field of a body. JSON's null is never read: it says nothing."""

    def read(self, value: Any, name: str) -> Any:
        """What the value means. Raises BadRequest, which calls it `name`."""

    def schema(self) -> Schema:
        """What is read, in JSON Schema's words."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; 2.0 is as good as 2, true is none."""

    low: int
    high: int

    def read(self, value: Any, name: str) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not self.low <= value <= self.high:
            refuse(name, value, f"a whole number of {self.low} to {self.high}")
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`; `above` leaves `low` itself out."""

    low: float
    high: float
    above: bool = False

    def read(self, value: Any, name: str) -> float:
        wanted = (
            f"a number {'above' if self.above else 'of'} {self.low:g} "
            f"{'and at most' if self.above else 'to'} {self.high:g}"
        )
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(name, value, wanted)
        if not self.low <= value <= self.high or (self.above and value == self.low):
            refuse(name, value, wanted)
        return float(value)

    def schema(self) -> Schema:
        least = "exclusiveMinimum" if self.above else "minimum"
        return {"type": "number", least: self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Flag:
    def read(self, value: Any, name: str) -> bool:
        if not isinstance(value, bool):
            refuse(name, value, "true or false")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Words:
    """A short text, such as a name."""

    longest: int = 1000  # characters

    def read(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            refuse(name, value, "text")
        if len(value) > self.longest:
            raise BadRequest(
                f"{name}: got {len(value)} characters, wanted {self.longest} at most", name
            )
        return sound(value, name)

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Neutral:
    """A parameter that is not supported, with the values of it that change nothing."""

    values: tuple[object, ...]

    def read(self, value: Any, name: str) -> None:
        # A whole number is as good written as 1.0; a boolean is no number.
        floats = [float(one) for one in self.values if type(one) is int]
        if not any(type(value) is type(one) and value == one for one in (*self.values, *floats)):
            raise BadRequest(
                f"{name} is not supported yet: leave it out", name, code="unsupported_parameter"
            )

    def schema(self) -> Schema:
        return {"enum": [*self.values, None], "description": "not supported beyond these values"}


@dataclass(frozen=True, slots=True)
class Label:
    """Says who asks, or what for: it never changes an answer, so that anything is taken."""

    def read(self, value: Any, name: str) -> None:
        return None

    def schema(self) -> Schema:
        return {"description": "taken and not used"}


def read_fields(
    body: Mapping[str, Any], parameters: Mapping[str, Parameter], inside: str = ""
) -> dict[str, Any]:
    """What a body, or the object `inside` it, says beyond nulls. Raises BadRequest.

    Nothing is ever ignored: what is not in `parameters` is refused by name.
    """
    said = {}
    for key, value in body.items():
        if key not in parameters:
            shown = inside + ascii(key[:80])[1:-1]
            raise BadRequest(f"unknown parameter '{shown}'", shown, code="unknown_parameter")
        if value is not None:
            said[key] = parameters[key].read(value, inside + key)
    return said


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema


def object_of(parameters: Mapping[str, Parameter], *required: str) -> Schema:
    """The schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {
            name: one.schema() if name in required else nullable(one.schema())
            for name, one in parameters.items()
        },
        "required": list(required),
        "additionalProperties": False,
    }


def refuse(name: str, value: object, wanted: str) -> NoReturn:
    got = kind(value) if isinstance(value, str | list | dict) else f"{value!r:.40}"
    raise BadRequest(f"{name}: got {got}, wanted {wanted}", name)


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
