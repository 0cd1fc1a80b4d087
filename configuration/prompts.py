"""Reads a prompts file: JSONL, one prompt a line. A bad line is named by its number.

Knows the format; knows nothing of tokens, or of what is done with a prompt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from configuration.faults import ConfigurationError, Fault
from speculation.records import Prompt

KEYS = ("id", "messages", "reference", "task", "language", "adapter")
DEFAULTED = ("task", "language", "adapter")
ROLES = ("system", "user", "assistant", "tool")
EXAMPLE = '{"id": "1", "messages": [{"role": "user", "content": "…"}]}'
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # bidi too
SHOWN_FAULTS = 20  # a file of another format has a fault on every line


def read_prompts(path: Path | str) -> list[Prompt]:
    """Every prompt of a JSONL file, in its order; blank lines are passed over.

    Raises ConfigurationError (a ValueError) naming each bad line, and for a file that is missing,
    empty or not text.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError as error:
        do = f"write it, a prompt a line: {EXAMPLE}"
        fault = Fault("the file", "nothing there", "a prompts file (JSONL)", do)
        raise ConfigurationError(str(path), [fault]) from error
    except OSError as error:
        got = error.strerror or str(error)
        fault = Fault("the file", got, "a prompts file (JSONL)", "make it a readable file")
        raise ConfigurationError(str(path), [fault]) from error
    prompts: list[Prompt] = []
    faults: list[Fault] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(line, f"line {number}")
        except ConfigurationError as error:
            faults += error.faults
            continue
        if prompt.id in first_line:
            got = f"the id {prompt.id!r} of line {first_line[prompt.id]} again"
            faults.append(Fault(f"line {number}", got, "an id of its own", "rename one of the two"))
        first_line.setdefault(prompt.id, number)
        prompts.append(prompt)
    if not prompts and not faults:
        faults = [Fault("line 1", "an empty file", f"a line like {EXAMPLE}", "add prompts")]
    if faults:
        raise ConfigurationError(str(path), _shown(faults))
    return prompts


def read_pairing_prompts(path: Path | str, adapters: Collection[str]) -> list[Prompt]:
    """The prompts that teach or judge a pairing's drafts: as `read_prompts`, of the target and its
    `adapters`.

    Raises ConfigurationError naming those that ask for another adapter too: the pairing is served,
    and so measured, without it.
    """
    prompts = read_prompts(path)
    have = f"one of {', '.join(sorted(adapters))}, or none" if adapters else "none"
    faults = [
        Fault(
            f"prompt {prompt.id!r}",
            f"the adapter {prompt.adapter!r}",
            f"{have}: the pairing has no other",
            "name its folder in the pairing's table `adapters`, or leave the prompt out",
        )
        for prompt in prompts
        if prompt.adapter is not None and prompt.adapter not in adapters
    ]
    if faults:
        what = "prompts for an adapter that the pairing has not"
        raise ConfigurationError(str(path), _shown(faults, what, "as those"))
    return prompts


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> None:
    """The inverse of `read_prompts`, whole or not at all; fields at their defaults are left out."""
    lines = []
    for prompt in prompts:
        entry: dict[str, Any] = {"id": prompt.id, "messages": [dict(m) for m in prompt.messages]}
        if prompt.reference is not None:
            entry["reference"] = prompt.reference
        if prompt.task != "default":
            entry["task"] = prompt.task
        if prompt.language != "und":
            entry["language"] = prompt.language
        if prompt.adapter is not None:
            entry["adapter"] = prompt.adapter
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text("".join(lines), encoding="utf-8")
    os.replace(beside, path)


def _prompt(line: bytes, key: str) -> Prompt:
    def wrong(got: str, wanted: str, do: str) -> ConfigurationError:
        return ConfigurationError(key, [Fault(key, got, wanted, do)])

    try:
        entry = json.loads(line)
    except UnicodeDecodeError as error:
        raise wrong(f"bytes that are not UTF-8 ({error.reason})", "UTF-8", "re-encode") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise wrong(f"no JSON ({error})", f"a line like {EXAMPLE}", "mend the line") from error
    if not isinstance(entry, dict):
        raise wrong(_kind(entry), f"an object like {EXAMPLE}", "mend the line")
    if unknown := [name for name in entry if name not in KEYS]:
        raise wrong(f"the key {unknown[0]!r}", f"only {', '.join(KEYS)}", "remove or rename it")
    if not isinstance(entry.get("id"), str) or not entry["id"]:
        raise wrong(f"id = {entry.get('id')!r}", "a non-empty string", "give the prompt an id")
    messages = entry.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong(
            f"messages = {_kind(messages)}", "a list of chat messages", "write it as " + EXAMPLE
        )
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            got = sorted(message) if isinstance(message, dict) else _kind(message)
            raise wrong(f"messages[{index}] with {got}", "role and content", "mend the message")
        if message["role"] not in ROLES:
            raise wrong(f"the role {message['role']!r}", f"one of {', '.join(ROLES)}", "rename it")
        if not isinstance(message["content"], str):
            raise wrong(f"content = {_kind(message['content'])}", "a string", "mend the message")
    for name in ("reference", "task", "language", "adapter"):
        if entry.get(name) is not None and not isinstance(entry[name], str):
            raise wrong(f"{name} = {_kind(entry[name])}", "a string", "mend or remove it")
    for name in ("id", *DEFAULTED):
        if CONTROL.search(entry.get(name) or ""):
            got = f"{name} = {entry[name]!r} with a control character"
            raise wrong(got, "text of one line", "take it out: names are shown on terminals")
    given: Mapping[str, str] = {
        k: entry[k] for k in ("task", "language", "adapter") if entry.get(k)
    }
    return Prompt(entry["id"], tuple(messages), entry.get("reference"), **given)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a JSON {type(value).__name__}"


def _shown(
    faults: list[Fault], what: str = "bad lines", ask: str = "is this a prompts file at all?"
) -> list[Fault]:
    if len(faults) <= SHOWN_FAULTS:
        return faults
    rest = len(faults) - SHOWN_FAULTS
    more = Fault(f"and {rest} more", what, "none", ask)
    return [*faults[:SHOWN_FAULTS], more]
