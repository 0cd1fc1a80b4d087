"""Reads one `paceline.toml` and the environment into `Settings`, validated as a whole."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configuration.environment import PREFIX, overlay, read_secret
from configuration.faults import ConfigurationError, Fault
from configuration.secrets import tenants_of, words_of
from configuration.settings import Settings
from configuration.tables import to_record
from evaluation.policy import Policy

FILE = "paceline.toml"
SECRETS = (
    *("registry_token", "hub_token", "keys", "admin_keys", "hook_secret", "notice_secret"),
    *("alert_token", "scrape_token", "prometheus_token"),
)


def read_settings(home: Path, *, environ: Mapping[str, str]) -> Settings:
    """The settings of a home folder; a home without `paceline.toml` has every default, no pairing.

    Relative paths stay as written: `Settings.path` takes them from the home folder. Raises
    ConfigurationError with every fault of the file and of the environment.
    """
    path = home / FILE
    faults: list[Fault] = []
    table = _parsed(path, faults)
    for name in SECRETS:
        if table.pop(name, None) is not None:
            variable = PREFIX + name.upper()
            do = f"set {variable} or {variable}_FILE instead"
            faults.append(Fault(name, "a secret in the file", "none here", do))
    merged = overlay(table, Settings, environ, secrets=SECRETS, faults=faults)
    secrets: dict[str, Any] = {n: read_secret(n, environ, faults=faults) for n in SECRETS}
    secrets["keys"] = tenants_of(secrets["keys"], PREFIX + "KEYS", faults=faults)
    secrets["admin_keys"] = words_of(secrets["admin_keys"])
    settings = to_record(Settings, merged, key="", faults=faults, fixed={"home": home, **secrets})
    if faults or settings is None:
        raise ConfigurationError(str(path), faults)
    return settings


def read_policy(path: Path) -> Policy:
    """A gate's policy that has a file to itself: the keys of a pairing's `policy` table, alone.

    Raises ConfigurationError with every fault; what is left out is at its default.
    """
    faults: list[Fault] = []
    table = _parsed(path, faults)
    if not faults and not path.exists():
        faults.append(Fault("the file", "nothing there", "TOML text", "name a file that exists"))
    policy = to_record(Policy, table, key="", faults=faults)
    if faults or policy is None:
        raise ConfigurationError(str(path), faults)
    return policy


def _parsed(path: Path, faults: list[Fault]) -> dict[str, Any]:
    """The file's tables; none, with the reason added to `faults`, where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        got, do = error.strerror or str(error), "make it a readable file"
    except UnicodeDecodeError:
        got, do = "bytes that are not UTF-8", "save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        got = str(error)
        do = "mend that line" if "(at line" in got else "mend its end"
    faults.append(Fault("the file", got, "TOML text", do))
    return {}
