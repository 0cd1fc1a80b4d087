"""Hooks of schemathesis: a check that whoever has no key gets through to health alone."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, Response


@schemathesis.check
def closed_without_a_key(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    if case.operation.path.startswith("/health/"):
        assert response.status_code in (200, 405)
    else:  # what a path or a method is not there for says so to everybody
        assert response.status_code in (401, 404, 405, 413), response.status_code
        unknown = case.method.lower() != case.operation.method.lower()
        assert response.status_code == 401 or unknown or case.operation.path == "/v1/models/{name}"
