"""Whose secret came along: a tenant's, the operator's or nobody's.

Knows secrets; knows nothing of HTTP but the header that carries one. Only digests are kept, every
one of them is compared, and each comparison takes the same time whatever the secret is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ADMIN = "admin"  # the tenant that the operator is where tenants have keys
ANYONE = ""  # the tenant that everybody is where none has
LEAST_CHARACTERS = 16
MOST_TENANTS = 256  # all of them are compared with each request's
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TENANTS_LINE = re.compile(rf"{TENANT.pattern}=[\x21-\x7e]{{{LEAST_CHARACTERS},}}")
SECRET = re.compile(r"[\x21-\x7e]+")  # what a header carries as it is

Known = tuple[tuple[str, bytes], ...]  # a name and its secret's digest


@dataclass(frozen=True)
class Keys:
    """The secrets that a server knows, as digests."""

    _tenants: Known = field(default=(), repr=False)
    _admin: Known = field(default=(), repr=False)

    @classmethod
    def of(cls, tenants: Mapping[str, str], admin: Iterable[str]) -> Keys:
        """From the secrets by tenant, and the operator's."""
        return cls(
            tuple((name, _digest(secret)) for name, secret in tenants.items()),
            tuple((ADMIN, _digest(secret)) for secret in admin),
        )

    @property
    def guarded(self) -> bool:
        """Whether an admin side without the right key is closed, from wherever it is asked."""
        return bool(self._admin)

    def tenant(self, authorization: str | None) -> str | None:
        """Who asks, by the `Authorization` header; None for nobody that is known.

        Where no tenant has a key, everybody is `ANYONE`. The operator may ask what tenants may.
        """
        found = _named(authorization, self._tenants + self._admin)
        return ANYONE if found is None and not self._tenants else found

    def operator(self, authorization: str | None) -> int | None:
        """Which admin key came along, by its place from 1; None for none of them."""
        numbered = tuple((str(place), digest) for place, (_, digest) in enumerate(self._admin, 1))
        found = _named(authorization, numbered)
        return None if found is None else int(found)


def wrong_keys(tenants: Mapping[str, str], admin: Iterable[str]) -> str | None:
    """What is wrong with these secrets, without showing any; None if nothing is."""
    admin = tuple(admin)
    if tenants and not admin:
        return (
            "keys for tenants and none for the admin side: set PACELINE_ADMIN_KEYS as well, or "
            "every process on this host may read and steer what needs a key elsewhere"
        )
    if len(tenants) > MOST_TENANTS:
        return f"keys of {len(tenants)} tenants: wanted {MOST_TENANTS} at most"
    for name in tenants:
        if not TENANT.fullmatch(name) or name == ADMIN:
            return (
                f"the tenant {name[:80]!r}: wanted letters, digits, '.', '_' and '-', at most 63, "
                f"and another name than {ADMIN!r}"
            )
    for name, secret in (*tenants.items(), *((ADMIN, secret) for secret in admin)):
        if len(secret) < LEAST_CHARACTERS or not SECRET.fullmatch(secret):
            return (
                f"a key of {name!r} with {len(secret)} characters: wanted {LEAST_CHARACTERS} or "
                "more of ASCII without spaces, such as `openssl rand -hex 24` prints"
            )
    for secret in admin:
        if TENANTS_LINE.fullmatch(secret):
            return "an admin key of the form NAME=KEY, as tenants have them: wanted the key alone"
    if len({*tenants.values(), *admin}) < len(tenants) + len(admin):
        return "the same key twice: wanted one of their own for each tenant and for the admin side"
    return None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _named(authorization: str | None, known: Known) -> str | None:
    scheme, _, secret = (authorization or "").partition(" ")
    offered = _digest(secret.strip() if scheme.lower() == "bearer" else "")
    found = None
    for name, digest in known:  # all of them, whichever it was
        if hmac.compare_digest(offered, digest):
            found = name
    return found
