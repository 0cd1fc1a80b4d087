"""Posts what is to be told to somebody's webhook: signed, and only to where it may go.

The one way out for notices of the whole product. Signed as https://www.standardwebhooks.com asks.
Only https, only the host of the configured address, no redirects; an address on a private network,
or plain http, only where the configuration names the host. The address is resolved once and that
answer is what is connected to. Knows nothing of what is told (`payloads.py`) or of when.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

import httpx

TIMEOUT_SECONDS = 10.0  # for each of connecting, sending, and the answer to begin
Resolve = Callable[[str, int], Sequence[str]]


class Outcome(StrEnum):
    DONE = "done"
    AGAIN = "again"  # it may go better later, or once the configuration is mended
    NEVER = "never"  # the receiver is gone for good


@dataclass(frozen=True, slots=True)
class Sent:
    """How it went; `why` never holds the address, which may be a secret."""

    outcome: Outcome
    why: str = ""


def sign(secret: str, *, id: str, at: float, body: bytes) -> dict[str, str]:
    """The headers that prove who sent it, and when. ValueError for a secret that is none.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> message = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    >>> signed = sign(secret, id=message, at=1614265330, body=b'{"test": 2432232314}')
    >>> signed["webhook-signature"]
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < 16:
        raise ValueError(
            "got a webhook secret that is no base64 of 16 bytes or more, wanted such as "
            "whsec_$(openssl rand -base64 32)"
        )
    told = f"{int(at)}"
    signed = hmac.new(key, f"{id}.{told}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": told,
        "webhook-signature": "v1," + base64.b64encode(signed).decode(),
    }


def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses behind a name. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


def post(
    url: str,
    body: bytes,
    *,
    id: str,
    at: float,  # now, in seconds since the epoch: receivers refuse what is old
    secret: str | None = None,  # None: not signed
    hosts: Sequence[str] = (),  # on private networks, or plain http, that it may go to
    resolve: Resolve = resolved,
    client: httpx.Client | None = None,
) -> Sent:
    """Send it once. A "no" is a value: nothing is raised for a receiver that fails."""
    try:
        parts = _allowed(url, hosts)
        headers = {} if secret is None else sign(secret, id=id, at=at, body=body)
        address = _address(parts, hosts, resolve)
    except ValueError as refused:
        return Sent(Outcome.AGAIN, str(refused))
    except OSError as error:
        return Sent(Outcome.AGAIN, f"its host is not found: {error.strerror or error}")
    headers |= {"content-type": "application/json", "host": parts.netloc}
    try:
        if client is not None:
            return _exchanged(client, parts, address, headers, body)
        with httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as our_own:
            return _exchanged(our_own, parts, address, headers, body)
    except httpx.TransportError as error:
        return Sent(Outcome.AGAIN, f"{type(error).__name__}: {error}")


def _exchanged(
    client: httpx.Client, parts: SplitResult, address: str, headers: dict[str, str], body: bytes
) -> Sent:
    host = f"[{address}]" if ":" in address else address
    port = f":{parts.port}" if parts.port else ""
    there = parts._replace(netloc=host + port, fragment="").geturl()
    # the certificate has to be the name's, not the address's
    named = {"sni_hostname": parts.hostname} if parts.scheme == "https" else {}
    asked = client.build_request("POST", there, content=body, headers=headers, extensions=named)
    answer = client.send(asked, stream=True, follow_redirects=False)
    answer.close()  # what it says beyond its status is nobody's business
    if answer.is_success:
        return Sent(Outcome.DONE)
    outcome = Outcome.NEVER if answer.status_code == 410 else Outcome.AGAIN
    return Sent(outcome, f"it answered {answer.status_code}")


def _allowed(url: str, hosts: Sequence[str]) -> SplitResult:
    """The address in parts. ValueError where nothing may go there."""
    try:
        parts = urlsplit(url)
        parts = parts._replace(scheme=parts.scheme.lower())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, SplitResult("", "", "", "", "")
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("its address is none, wanted https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("its address holds a name or a password, wanted it without")
    if parts.scheme == "http" and not _named(host, hosts):
        raise ValueError("it is plain http, wanted https, or its host named in notices.hosts")
    return parts


def _address(parts: SplitResult, hosts: Sequence[str], resolve: Resolve) -> str:
    """Where to connect to. ValueError where any of the answers is on a private network."""
    host = parts.hostname or ""
    found = resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
    if not found:
        raise OSError("no address")
    if not _named(host, hosts):
        for address in found:
            if not _public(address):
                raise ValueError(
                    "its host is on a private network, wanted one that everybody reaches, or its "
                    "name in notices.hosts"
                )
    return found[0].partition("%")[0]


def _named(host: str, hosts: Sequence[str]) -> bool:
    return host.lower().rstrip(".") in {one.lower().strip("[]").rstrip(".") for one in hosts}


def _public(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return (inner or found).is_global and not found.is_multicast
