"""Hooks of schemathesis: its requests to the registry's webhook are signed as the registry does it.

A module of its own, since schemathesis takes what it finds set when it has imported it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
import uuid
from typing import Any

import schemathesis
from requests import PreparedRequest
from requests.auth import AuthBase
from schemathesis import Case, CheckContext, Response
from schemathesis.auths import GLOBAL_AUTH_STORAGE  # as `schemathesis.auth`, with its types


class Signed(AuthBase):
    def __init__(self, secret: str) -> None:
        self.secret = secret.encode()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        assert isinstance(body, bytes)
        delivery, sent = uuid.uuid4().hex, f"{time.time():.0f}"
        signed = hmac.new(self.secret, f"{delivery}.{sent}.".encode() + body, hashlib.sha256)
        request.headers["x-mlflow-signature"] = "v1," + base64.b64encode(signed.digest()).decode()
        request.headers["x-mlflow-delivery-id"] = delivery
        request.headers["x-mlflow-timestamp"] = sent
        return request


@schemathesis.check
def what_is_signed_is_believed(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    if case.operation.path == "/hooks/registry" and case.method == "POST":
        assert response.status_code in (202, 413), response.status_code


GLOBAL_AUTH_STORAGE.set_from_requests(Signed(os.environ["HOOK_SECRET"])).apply_to(
    path="/hooks/registry"
)
