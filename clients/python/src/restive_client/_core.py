"""What the sync and the async client share: requests, responses, retries and the ETag cache.

Does no I/O.
"""

from __future__ import annotations

import datetime
import json
import random
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union
from urllib.parse import quote, urlencode

import httpx

from ._json import loads
from .errors import ApiError, ConnectionFailed, InvalidResponse, RequestTimeout, api_error

#: An API key, or a function that returns one. It is called before the first request, and again
#: with True after the server has refused its last result.
Key: TypeAlias = Union[str, Callable[[bool], str], None]
AsyncKey: TypeAlias = Union[str, Callable[[bool], Union[str, Awaitable[str]]], None]

#: A server that asks for more is not waited for: the caller gets the error with ``retry_after``.
MAX_RETRY_AFTER_SECONDS = 60.0
#: A page of a list has at most 4 MiB, and what is embedded in it 8 MiB. A proxy or another server
#: may send anything.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
#: What is sent in ``Accept-Encoding``. A part of a response of 64 KiB has at most 64 MiB when it is
#: decoded. With two codings, or others, it could have any size, and it is decoded as a whole.
ENCODINGS = "gzip, deflate"
_DECODED = ("", "identity", "gzip", "deflate")
#: A larger body is not kept, so that 100 entries stay below 25 MB.
MAX_CACHED_BYTES = 256 * 1024

#: Parameters whose value is not a filter: commas in them are not quoted.
_PLAIN = frozenset("limit page after sort q include expand fields since wait types".split())


@dataclass(frozen=True)
class Meta:
    """What a response says about a record besides its fields."""

    status: int
    #: For ``if_match``.
    etag: str | None
    request_id: str | None
    #: The server had executed this request before and returned the stored response.
    replayed: bool
    #: Position of the log at which the response was read. Follow from there to miss nothing.
    position: str | None
    headers: Mapping[str, str]


class Record(dict[str, Any]):
    """A record: a dict with ``meta``."""

    meta: Meta | None = None


def meta(record: Any) -> Meta | None:
    """The metadata of a record or page that a client returned; None for other objects."""
    found = getattr(record, "meta", None)
    return found if isinstance(found, Meta) else None


def path(template: str, *values: str | int) -> str:
    """``path("/v1/books/{}/reviews", id)``: encodes each value as one path segment.

    An empty value would name the collection, and a dot another resource, so both are refused.
    """
    texts = [str(value) for value in values]
    for text in texts:
        if text in ("", ".", ".."):
            raise ValueError(f"{text!r} is not an id, in {template}")
    return template.format(*(quote(text, safe="") for text in texts))


def query_string(query: Mapping[str, Any] | None) -> str:
    """``?name=value&…``, or nothing. None means the filter "is null"."""
    pairs = [(name, _values(name, value)) for name, value in (query or {}).items()]
    return f"?{urlencode(pairs)}" if pairs else ""


def _values(name: str, value: Any) -> str:
    plain = name in _PLAIN
    many = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    return ",".join(_text(one, plain) for one in value) if many else _text(value, plain)


def _text(value: Any, plain: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.astimezone()).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    text = str(value)
    # A filter splits its value at commas and reads `null`, so a text with those is quoted.
    if (
        plain
        or not isinstance(value, str)
        or not ("," in text or text[:1] == '"' or text == "null")
    ):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass
class Call:
    """One request, as it is repeated."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    timeout: float
    max_retries: int
    cached: tuple[str, str] | None = field(default=None)


class Core:
    """Builds requests and reads responses."""

    def __init__(
        self, url: str, version: str | None, timeout: float, max_retries: int, cache: int
    ) -> None:
        self.url = url.rstrip("/")
        if httpx.URL(self.url).scheme not in ("http", "https"):
            raise ValueError("the url of the service must begin with http:// or https://")
        self.version = version
        self._timeout = timeout
        self._max_retries = max_retries
        self._limit = cache
        self._cache: OrderedDict[str, tuple[str, str]] = OrderedDict()
        # A client may be used from several threads.
        self._lock = threading.Lock()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        if_match: str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        version: str | None = None,
    ) -> Call:
        sent = {"Accept": "application/json", "Accept-Encoding": ENCODINGS}
        if version or self.version:
            sent["Restive-Version"] = str(version or self.version)
        content = None
        if body is not None:
            content = json.dumps(body, separators=(",", ":"), default=_json_default).encode()
            merge = method == "PATCH"
            sent["Content-Type"] = "application/merge-patch+json" if merge else "application/json"
        if method in ("POST", "PATCH"):
            sent["Idempotency-Key"] = idempotency_key or secrets.token_hex(16)
        if if_match is not None:
            found = meta(if_match)
            etag = if_match if isinstance(if_match, str) else found.etag if found else None
            if not etag:
                # Without the condition the write would be unconditional, which nobody asked for.
                raise ValueError("if_match has no ETag: pass a record that this client returned")
            sent["If-Match"] = etag
        sent.update(headers or {})
        return Call(
            method,
            self.url + path + query_string(query),
            sent,
            content,
            self._timeout if timeout is None else timeout,
            self._max_retries if max_retries is None else max_retries,
        )

    def headers(self, call: Call, credential: str | None) -> dict[str, str]:
        """The headers of one attempt."""
        headers = dict(call.headers)
        if credential:
            headers["Authorization"] = f"Bearer {credential}"
        with self._lock:
            call.cached = self._cache.get(self._place(call)) if call.method == "GET" else None
        if call.cached:
            headers["If-None-Match"] = call.cached[0]
        return headers

    def forget(self) -> None:
        """Another user must not see what the cache keeps for this one."""
        with self._lock:
            self._cache.clear()

    def read(self, call: Call, response: httpx.Response, body: str) -> Any:
        """The value of a response; raises ``ApiError``."""
        unchanged = response.status_code == 304 and call.cached is not None
        if not response.is_success and not unchanged:
            raise api_error(response.status_code, response.headers, body)
        text = call.cached[1] if unchanged and call.cached else body
        if not text:
            return None
        try:
            value = loads(text)
        except (ValueError, RecursionError) as error:
            kind = response.headers.get("content-type", "no content type")
            message = f"status {response.status_code} with a body that is not JSON ({kind})"
            raise InvalidResponse(message) from error
        if isinstance(value, dict):
            value = Record(value)
            value.meta = meta_of(response)
        etag = response.headers.get("etag")
        if call.method == "GET" and etag and self._limit > 0 and len(text) <= MAX_CACHED_BYTES:
            self._keep(self._place(call), etag, text)
        return value

    def _keep(self, place: str, etag: str, text: str) -> None:
        with self._lock:
            self._cache[place] = (etag, text)
            self._cache.move_to_end(place)
            while len(self._cache) > self._limit:
                self._cache.popitem(last=False)

    @staticmethod
    def _place(call: Call) -> str:
        return f"{call.headers.get('Restive-Version')} {call.url}"


def text_of(response: httpx.Response) -> str:
    """The body of an open response, with a limit."""
    if not is_decoded(response):
        return _unreadable(response, _CODED)
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            return _unreadable(response, _LARGE)
    return body.decode("utf-8", "replace")


async def async_text_of(response: httpx.Response) -> str:
    """``text_of`` for asyncio."""
    if not is_decoded(response):
        return _unreadable(response, _CODED)
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            return _unreadable(response, _LARGE)
    return body.decode("utf-8", "replace")


def is_decoded(response: httpx.Response) -> bool:
    """Whether the coding of its body is one that was asked for."""
    return response.headers.get("content-encoding", "").strip().lower() in _DECODED


_LARGE = f"the response is larger than {MAX_RESPONSE_BYTES} bytes"
_CODED = f"the response has another coding than {ENCODINGS}"


def _unreadable(response: httpx.Response, reason: str) -> str:
    if response.is_success:
        raise InvalidResponse(reason)
    # Of an error, the status is enough.
    return ""


def meta_of(response: httpx.Response) -> Meta:
    headers = response.headers
    return Meta(
        response.status_code,
        headers.get("etag"),
        headers.get("request-id"),
        headers.get("idempotent-replayed") == "true",
        headers.get("x-stream-position"),
        headers,
    )


def _json_default(value: Any) -> str:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return _text(value, True)
    raise TypeError(f"{type(value).__name__} is not JSON")


def connection_error(call: Call, error: httpx.HTTPError) -> ConnectionFailed:
    # A type name at least: some of these errors have no text.
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeout(f"{call.method} {call.url}: no response within {call.timeout} s")
    return ConnectionFailed(f"{call.method} {call.url}: {reason}")


def retry_delay(error: Exception, attempt: int, call: Call) -> float | None:
    """Seconds to wait before the request is sent again; None if it must not be."""
    if attempt >= call.max_retries:
        return None
    backoff = min(0.5 * 2.0**attempt, 8.0) * (0.5 + random.random() / 2)
    # The server may have executed the request. POST and PATCH have an Idempotency-Key, and GET,
    # PUT and DELETE may be repeated. But a conditional PUT would be refused because of its effect.
    repeatable = not ("If-Match" in call.headers and call.method in ("PUT", "DELETE"))
    if isinstance(error, ConnectionFailed):
        return backoff if repeatable else None
    if not isinstance(error, ApiError):
        return None
    busy = error.code in ("idempotency_key_in_use", "action_in_progress")
    refused = error.status in (408, 429, 503) or busy
    failed = error.status >= 500 and error.status not in (501, 505) and error.code != "rule_failed"
    if not refused and not (failed and repeatable):
        return None
    delay = backoff if error.retry_after is None else error.retry_after
    return delay if delay <= MAX_RETRY_AFTER_SECONDS else None
