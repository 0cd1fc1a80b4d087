"""What a client is told when it gets no answer: every refusal and every fault, as OpenAI words it.

Pure: status, type, code and when to come back. Knows nothing of how it is sent. `type` says whose
fault it is and whether trying again can help; `code` says which one, for programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# A status of HTTP -> its error's type and, where nothing more exact is known, its code.
KINDS: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("invalid_request_error", "request_timeout"),
    409: ("invalid_request_error", "conflict"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "queue_full"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "unavailable"),
    504: ("timeout_error", "deadline_exceeded"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer. After its first byte a stream can only carry `body`."""

    status: int
    message: str
    code: str | None = None  # None: the status' own
    parameter: str | None = None  # what of the request is wrong, where one thing is
    retry_seconds: int | None = None  # when it is worth to come back

    @property
    def type(self) -> str:
        return self._kind[0]

    @property
    def body(self) -> dict[str, Any]:
        """As OpenAI's clients read it."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.parameter,
            "code": self.code or self._kind[1],
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_seconds is None else {"retry-after": str(self.retry_seconds)}

    @property
    def _kind(self) -> tuple[str, str]:
        fault = self.status >= 500
        return KINDS.get(self.status, KINDS[500 if fault else 400])


DEADLINE = Failure(504, "the request took too long")
CUT_SHORT = Failure(503, "the server ended before the request", "shutting_down", retry_seconds=5)
ENGINE_FAILED = Failure(500, "the engine failed on this request", "engine_failed")
NOT_WRITTEN = Failure(500, "the server failed to write this answer")
FAULT = Failure(500, "the server failed on this request")
