"""Errors of the client and the follower. All of them extend ``RestiveError``."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from ._json import loads


class RestiveError(Exception):
    """Base class of all errors of this package."""


class ConnectionFailed(RestiveError):
    """The request did not reach the server, or its response was lost."""


class RequestTimeout(ConnectionFailed):
    """The server did not respond in time."""


class InvalidResponse(RestiveError):
    """Not a response of a restive server, for example the HTML page of a proxy."""


class FollowError(RestiveError):
    """The follower ended and must not reconnect: the message says why."""


class ApiError(RestiveError):
    """The server responded with an error status."""

    def __init__(self, status: int, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        def text(name: str) -> str | None:
            value = body.get(name)
            return value if isinstance(value, str) else None

        super().__init__(text("message") or f"the server responded with status {status}")
        self.status = status
        #: Stable code, see docs/errors.md; empty if the response came from something else.
        self.code = text("code") or ""
        self.type = text("type") or ""
        self.param = text("param") or text("field")
        errors = body.get("errors")
        self.errors: list[dict[str, Any]] = errors if isinstance(errors, list) else []
        self.request_id = text("request_id") or headers.get("request-id")
        self.doc_url = text("doc_url") or text("documentation_url")
        #: Seconds that the server asks to wait.
        self.retry_after = retry_after(headers.get("retry-after"), time.time())
        #: The whole error object, with the members that a schema adds.
        self.body = dict(body)


class BadRequest(ApiError):
    """400"""


class AuthenticationFailed(ApiError):
    """401"""


class PaymentFailed(ApiError):
    """402"""


class PermissionDenied(ApiError):
    """403"""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409"""


class PreconditionFailed(ApiError):
    """The record is not the one that ``if_match`` names (412), or it is required (428)."""


class ValidationFailed(ApiError):
    """422: ``errors`` lists all fields that the server refused."""


class IdempotencyConflict(ApiError):
    """The Idempotency-Key was used for another request, or its request is still running."""


class RateLimited(ApiError):
    """429"""


class ServerError(ApiError):
    """5xx"""


_CLASSES: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: AuthenticationFailed,
    402: PaymentFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    422: ValidationFailed,
    428: PreconditionFailed,
    429: RateLimited,
}


def api_error(status: int, headers: Mapping[str, str], text: str) -> ApiError:
    """The error of a response, from its status and its body, whatever the body is."""
    body: Mapping[str, Any] = {}
    try:
        parsed = loads(text)
        # Structured bodies have an `error` object, flat ones are that object.
        found = parsed.get("error", parsed) if isinstance(parsed, dict) else None
        if isinstance(found, dict):
            body = found
    except (ValueError, RecursionError):
        pass  # Not JSON: the status is all that is known.
    if body.get("type") == "idempotency_error":
        return IdempotencyConflict(status, headers, body)
    fallback = ServerError if status >= 500 else ApiError
    return _CLASSES.get(status, fallback)(status, headers, body)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds from a number or an HTTP date; None if it is neither."""
    if not value:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, at - now)
