"""The messages of a chat: read, or refused by their place in the list.

Pure. Knows what OpenAI's clients send; which roles a model's template has, the template says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.fields import BadRequest, Schema, Words, nullable, sound

ROLES = ("system", "developer", "user", "assistant", "tool")
NAME = Words(64)
# What a client may send back of an answer of ours, or of OpenAI's: it says nothing.
EMPTY: Mapping[str, tuple[object, ...]] = {
    "refusal": (None,),
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "tool_calls": (None, []),
}
TEXT_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Messages:
    most: int

    def read(self, value: Any, name: str) -> tuple[Mapping[str, str], ...]:
        if not isinstance(value, list) or not value:
            raise _refused(name, "wanted a list of at least one message")
        if len(value) > self.most:
            raise _refused(name, f"got {len(value)} messages, wanted {self.most} at most")
        return tuple(_message(one, f"{name}[{place}]") for place, one in enumerate(value))

    def schema(self) -> Schema:
        content = {"anyOf": [{"type": "string"}, {"type": "array", "items": TEXT_PART}]}
        properties: Schema = {
            "role": {"enum": list(ROLES)},
            "content": content,
            "name": nullable({**NAME.schema(), "minLength": 1}),
            **{key: {"enum": list(values)} for key, values in EMPTY.items()},
        }
        message = {
            "type": "object",
            "properties": properties,
            "required": ["role", "content"],
            "additionalProperties": False,
        }
        empty_answer = {
            **message,
            "properties": {
                **properties,
                "role": {"const": "assistant"},
                "content": {"const": None},
            },
            "required": ["role"],
        }
        return {
            "type": "array",
            "items": {"anyOf": [message, empty_answer]},
            "minItems": 1,
            "maxItems": self.most,
        }


def _message(message: Any, name: str) -> Mapping[str, str]:
    if not isinstance(message, dict):
        raise _refused(name, "wanted an object with role and content")
    for key, value in message.items():
        if key in ("role", "content", "name"):
            continue
        if key not in EMPTY or not any(type(value) is type(e) and value == e for e in EMPTY[key]):
            shown = f"{name}.{ascii(key[:80])[1:-1]}"
            raise BadRequest(f"{shown} is not supported", shown, code="unsupported_parameter")
    role = message.get("role")
    if role not in ROLES:
        raise _refused(f"{name}.role", f"wanted one of {', '.join(ROLES)}")
    said = {"role": role, "content": _content(message.get("content"), role, f"{name}.content")}
    if message.get("name") is not None:
        said["name"] = NAME.read(message["name"], f"{name}.name")
        if not said["name"]:
            raise _refused(f"{name}.name", "wanted a name, or none")
    return said


def _content(content: Any, role: str, name: str) -> str:
    if content is None and role == "assistant":  # an answer without a word is sent back so
        return ""
    if isinstance(content, list):
        content = "".join(_part(part, f"{name}[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise _refused(name, "wanted text")
    return sound(content, name)


def _part(part: Any, name: str) -> str:
    if isinstance(part, dict) and set(part) == {"type", "text"} and part["type"] == "text":
        text = part["text"]
        if isinstance(text, str):
            return text
    raise _refused(name, 'wanted {"type": "text", "text": "..."}')


def _refused(name: str, wanted: str) -> BadRequest:
    return BadRequest(f"{name}: {wanted}", name)
