"""Which servers are on this machine. A proxy that the environment names cannot reach those."""

from __future__ import annotations

from ipaddress import ip_address

import httpx


def on_this_machine(url: str) -> bool:
    """Whether the URL's host is a loopback address; a name other than localhost is not looked up.

    For `trust_env` of httpx: what is elsewhere may be behind a proxy.
    """
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
