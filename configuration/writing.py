"""Writes a `paceline.toml` that shows every dial with its default and why it is there.

The comments come from the records' own source lines, so that a dial is stated once.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from configuration.faults import ConfigurationError, Fault
from configuration.settings import Pairing, Settings

HEADER = """\
# Paceline's configuration. A line that is commented out shows its default; relative paths start at
# this file's folder. Every dial can be overridden by the environment, a table down with two
# underscores: PACELINE_SERVING__PORT=8080. Secrets are never in here. They are variables, or in
# the file that a variable of the same name and _FILE names: PACELINE_REGISTRY_TOKEN and
# PACELINE_HUB_TOKEN, and of the server PACELINE_KEYS (words TENANT=KEY), PACELINE_ADMIN_KEYS and
# PACELINE_HOOK_SECRET; notices are signed with PACELINE_NOTICE_SECRET, Alertmanager shows the
# server PACELINE_ALERT_TOKEN, and the monitor shows what it reads PACELINE_SCRAPE_TOKEN and
# PACELINE_PROMETHEUS_TOKEN.
"""
FIELD_LINE = re.compile(r"^\s+(\w+)\s*:[^#]*#\s*(.+?)\s*$")
FROM_ELSEWHERE = (  # the command line and the environment
    *("home", "registry_token", "hub_token", "keys", "admin_keys", "hook_secret", "notice_secret"),
    *("alert_token", "scrape_token", "prometheus_token"),
)
SHOWN = ("target", "kind", "place")  # never commented out: nothing goes without them
TABLES = ("pairings",)  # written one by one, by whoever has them


def default_toml(pairings: Mapping[str, Pairing], *, registry: str = "", prefect: str = "") -> str:
    """The text of a configuration with these pairings; what is at its default is commented out."""
    settings = Settings(home=Path(), registry=registry, prefect=prefect)
    lines = [HEADER.rstrip(), "", *_dials(settings, "", shown=())]
    for name, pairing in pairings.items():
        lines += _table(pairing, f"pairings.{name}")
    return "\n".join(lines) + "\n"


def write_default(
    path: Path, pairings: Mapping[str, Pairing], *, registry: str = "", prefect: str = ""
) -> bool:
    """Writes that text whole or not at all; False, and nothing touched, where a file stands."""
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, default_toml(pairings, registry=registry, prefect=prefect))
    return True


def append_pairing(path: Path, name: str, pairing: Pairing) -> bool:
    """Adds a pairing's table to a file that stands and has none of that name; True.

    Raises ConfigurationError, and leaves the file, where a table cannot simply follow what is
    there.
    """
    text = path.read_text(encoding="utf-8").rstrip("\n")
    longer = "\n".join([text, *_table(pairing, f"pairings.{name}")]) + "\n"
    try:
        tomllib.loads(longer)
    except tomllib.TOMLDecodeError as error:
        do = "write the pairings as tables of their own, [pairings.NAME]"
        fault = Fault("pairings", str(error), "a file that a table can be added to", do)
        raise ConfigurationError(str(path), [fault]) from error
    _write(path, longer)
    return True


def _write(path: Path, text: str) -> None:
    """All of it or nothing."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def comments(cls: type) -> dict[str, str]:
    """What stands behind each field of a dataclass in its source."""
    found = (FIELD_LINE.match(line) for line in inspect.getsource(cls).splitlines())
    return {match[1]: match[2] for match in found if match}


def _table(record: Any, key: str) -> Iterator[str]:
    yield f"\n[{key}]  # {(type(record).__doc__ or '').splitlines()[0]}"
    yield from _dials(record, key, shown=SHOWN)


def _dials(record: Any, key: str, *, shown: tuple[str, ...]) -> Iterator[str]:
    why = comments(type(record))
    nested = []
    for spec in fields(record):
        value = getattr(record, spec.name)
        if is_dataclass(value):
            nested.append((f"{key}.{spec.name}" if key else spec.name, value))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            nested += [(f"[{key}.{spec.name}]", inner) for inner in value]
        elif spec.name not in (*FROM_ELSEWHERE, *TABLES):
            mark = "" if spec.name in shown or _changed(record, spec.name) else "# "
            yield f"{mark}{spec.name} = {literal(value)}  # {why[spec.name]}"
    for inner, value in nested:
        yield from _table(value, inner)


def _changed(record: Any, name: str) -> bool:
    """Whether a field differs from what the record has when it is left out."""
    spec = next(s for s in fields(record) if s.name == name)
    default = spec.default if spec.default_factory is MISSING else spec.default_factory()
    return bool(getattr(record, name) != default)


def literal(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, (Path, str)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(name)} = {literal(one)}" for name, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, tuple):
        return "[" + ", ".join(literal(inner) for inner in value) + "]"
    return json.dumps(value)
