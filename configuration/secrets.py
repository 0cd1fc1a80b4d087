"""Keys as they stand in a variable or a file of secrets: words, those of tenants with a name each.

Says what is wrong without showing a secret. Whether a key is good enough, the server says.
"""

from __future__ import annotations

from configuration.faults import Fault

TENANTS = "TENANT=KEY words, such as alice=3f9c…"


def tenants_of(text: str | None, variable: str, *, faults: list[Fault]) -> dict[str, str]:
    """Keys by tenant, out of `TENANT=KEY` words on one line or several."""
    keys: dict[str, str] = {}
    for place, word in enumerate((text or "").split(), start=1):
        name, _, secret = word.partition("=")
        if not name or not secret:
            got = f"word {place} without a name and a key"
            faults.append(Fault(variable, got, TENANTS, "write it so"))
        elif name in keys:
            faults.append(Fault(variable, f"{name!r} twice", "each tenant once", "remove one"))
        else:
            keys[name] = secret
    return keys


def words_of(text: str | None) -> tuple[str, ...]:
    """Keys without names, on one line or several."""
    return tuple((text or "").split())
