"""Checks that a webhook is the registry's own, lately sent and not seen before.

Knows the signature that MLflow puts on its webhooks; knows nothing of what they say, and nobody
acts on it: a webhook only makes somebody look at the registry sooner.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

SIGNATURE, DELIVERY, SENT = "x-mlflow-signature", "x-mlflow-delivery-id", "x-mlflow-timestamp"
VERSION = "v1"
FRESH_SECONDS = 300.0  # between the two hosts' clocks as well
MOST_REMEMBERED = 10_000  # deliveries of that time; then the oldest is forgotten


class HookError(ValueError):
    """A webhook that is not believed, and why."""


class Hooks:
    """Believes each delivery once."""

    def __init__(self, secret: str, *, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._clock = secret.encode(), clock
        self._seen: OrderedDict[str, float] = OrderedDict()  # delivery, when

    def new(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether this delivery has not come before. Raises HookError for one that is not signed.

        MLflow signs "delivery.timestamp.body" with HMAC-SHA256, and sends a failed delivery again
        as it was.
        """
        delivery, sent = headers.get(DELIVERY, ""), headers.get(SENT, "")
        version, _, signature = headers.get(SIGNATURE, "").partition(",")
        signed = f"{delivery}.{sent}.".encode("latin-1", "replace") + body
        right = base64.b64encode(hmac.new(self._secret, signed, hashlib.sha256).digest())
        offered = signature.encode("latin-1", "replace")
        if version != VERSION or not hmac.compare_digest(offered, right):
            raise HookError("the signature is not of this secret")
        if not (sent.isascii() and sent.isdigit() and len(sent) < 20):
            raise HookError(f"{SENT}: wanted seconds since the epoch")
        now = self._clock()
        if abs(now - int(sent)) > FRESH_SECONDS:
            raise HookError(
                f"sent {now - int(sent):.0f} s ago, wanted {FRESH_SECONDS:.0f} at most: set the "
                "clocks of both hosts"
            )
        while self._seen and next(iter(self._seen.values())) < now - 2 * FRESH_SECONDS:
            self._seen.popitem(last=False)
        if delivery in self._seen:
            return False
        self._seen[delivery] = now
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return True
