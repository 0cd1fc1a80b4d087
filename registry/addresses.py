"""What may be said of a server's address: all of it but a name and a password.

Takes addresses as text, and none of them is too odd for it. Asks nobody.
"""

from __future__ import annotations

import re

# scheme://name:password@host, or the same of which the beginning was forgotten. Up to the last @ of
# what stands before a path, as clients read it.
USER = re.compile(r"\A(?P<scheme>([A-Za-z][A-Za-z0-9+.-]*://)?)[^/?#]*@")


def names_a_user(url: str) -> bool:
    """Whether the address holds a name, or a password."""
    return USER.match(url) is not None


def sayable(url: str) -> str:
    """The address without them, for messages and logs."""
    return USER.sub(lambda found: found["scheme"], url, count=1)
