"""The receiver of webhooks: verifies, parses, and puts each event into a durable queue before it
answers. The work is done afterwards, by a ``Worker``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from typing import Any, Union

from ._callback import require_plain
from ._json import count_members, loads
from .inbox import MAX_ID_BYTES, STORE_SECONDS, DeadEvent, InboxStore, QueuedEvent, SqliteInbox, apply_once
from .inbox import is_usable_id, text_of
from .reconcile import async_reconcile, reconcile
from .webhook import TOLERANCE_SECONDS, Family, Headers, SignatureError, Verified
from .webhook import parse_secrets, verify
from .worker import AsyncWorker, Context, Worker

__all__ = [
    "Answer",
    "AsyncWorker",
    "Context",
    "DeadEvent",
    "InboxStore",
    "Problem",
    "QueuedEvent",
    "Receiver",
    "Source",
    "SqliteInbox",
    "Worker",
    "apply_once",
    "asgi_app",
    "async_reconcile",
    "reconcile",
    "wsgi_app",
]

#: A request to a restive service is at most 1 MiB by default; an event has the record before and
#: after it.
MAX_BODY_BYTES = 8 * 1024 * 1024
#: Threads of an application that wait for the store. Its own: handlers that block those of asyncio
#: must not delay the answers, and a disk that hangs must not take the threads of a WSGI server.
STORE_THREADS = 4
#: Requests that wait for those threads. They keep their bodies; with more, the disk is too slow to
#: store them within ``STORE_SECONDS``.
MAX_WAITING_REQUESTS = 512
#: How often it is found out why a signature does not match: that is expensive.
DIAGNOSE_EVERY_SECONDS = 1.0
#: For the provider, if the event could not be stored.
RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True)
class Problem:
    """A request that was not accepted, or a known id with another body (status 200)."""

    status: int
    code: str
    message: str
    #: Why a signature was refused, or why the store failed.
    error: Exception | None = None
    event_id: str | None = None


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """How a request arrived, which only the server knows."""

    #: Over HTTPS.
    secure: bool = False
    #: Of the client.
    address: str | None = None


class Receiver:
    """Handles requests of one endpoint. Its methods never raise and may be called from threads.

    ``event_id``: the id by which deliveries are deduplicated. Default: the id that Standard
    Webhooks sign, the ``id`` of the body, or for signatures without a time the SHA-256 of the body.
    ``https_only``: refuses requests that did not arrive over HTTPS. ``allow``: the networks that
    may send webhooks, such as ``["192.0.2.0/24"]``; default: all. ``on_problem`` is called for each
    request that was not accepted, from any thread, and for a known id with another body. What it
    raises is ignored.
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        store: InboxStore,
        *,
        tolerance_seconds: int = TOLERANCE_SECONDS,
        families: Sequence[Family] = ("standard", "timestamped"),
        header_names: Mapping[str, str] | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        event_id: Callable[[dict[str, Any], Verified], str | None] | None = None,
        https_only: bool = False,
        allow: Sequence[str] | None = None,
        on_problem: Callable[[Problem], None] | None = None,
    ) -> None:
        # A wrong setting must stop the program, not each request.
        parse_secrets(secrets)
        require_plain(on_problem=on_problem, event_id=event_id)
        self._secrets = secrets
        self._store = store
        self._tolerance = tolerance_seconds
        self._families = families
        self._names = header_names
        self.max_body_bytes = max_body_bytes
        self._event_id = event_id
        self._https_only = https_only
        self._allow = None if allow is None else [ipaddress.ip_network(one) for one in allow]
        self._on_problem = on_problem
        self._lock = threading.Lock()
        self._diagnosed_at = -math.inf

    def check(self, method: str, source: Source) -> Answer | None:
        """What can be decided before the body is read: a refusal, or None."""
        if self._https_only and not source.secure:
            return self._refuse(403, "https_required", "webhooks are accepted over HTTPS only")
        if self._allow is not None and not _is_in(self._allow, source.address):
            message = "this address is not allowed to send webhooks"
            return self._refuse(403, "address_not_allowed", message)
        if method != "POST":
            refused = self._refuse(405, "method_not_allowed", "send a POST")
            return Answer(refused.status, refused.body, {**refused.headers, "Allow": "POST"})
        return None

    def accept(
        self, method: str, headers: Headers, body: bytes, source: Source = Source()
    ) -> Answer:
        """Handles one request, whose body is exactly as it was received."""
        refused = self.check(method, source)
        if refused:
            return refused
        if len(body) > self.max_body_bytes:
            return self.too_large()
        try:
            verified = verify(
                headers,
                body,
                self._secrets,
                tolerance_seconds=self._tolerance,
                families=self._families,
                header_names=self._names,
                diagnose=self._may_diagnose,
            )
        except SignatureError as error:
            return self._refuse(401, f"signature_{error.reason}", str(error), error)
        try:
            event = _parse(body)
            fingerprint = fingerprint_of(event)
        except RecursionError:
            return self._refuse(400, "invalid_body", "the body is nested too deeply")
        except ValueError as error:
            return self._refuse(400, "invalid_body", str(error))
        try:
            own = self._event_id
            id = own(event, verified) if own else _default_id(event, verified, body)
        except Exception as error:
            return self._failed(error, None)
        if not is_usable_id(id):
            message = f"the event has no usable id: a text of 1 to {MAX_ID_BYTES} bytes"
            return self._refuse(400, "invalid_id", message)
        # Readers of JSON differ in which of two members counts.
        is_of_body = id == event.get("id") and (own is not None or verified.id is None)
        if is_of_body and count_members(body.decode(), "id") > 1:
            return self._refuse(400, "invalid_body", "the body has two members `id`")
        return self._put(id, text_of(event.get("type")), body.decode(), fingerprint)

    def too_large(self) -> Answer:
        """For handlers that stop reading at the limit."""
        message = f"the body is larger than {self.max_body_bytes} bytes"
        return self._refuse(413, "body_too_large", message)

    def incomplete(self) -> Answer:
        """The body ended before its declared length."""
        return self._refuse(400, "body_incomplete", "the body ended too early")

    def not_stored(self, reason: str) -> Answer:
        """For handlers that give up: too late, or too many requests wait."""
        return self._failed(TimeoutError(reason), None)

    def _put(self, id: str, type: str, body: str, fingerprint: str) -> Answer:
        try:
            result = self._store.put(id, type, body, fingerprint)
        except Exception as error:
            return self._failed(error, id)
        if result == "different":
            message = f"event {id} is known with another content; this one is not processed"
            self._report(Problem(200, "different_body", message, None, id))
        duplicate = {} if result == "stored" else {"duplicate": True}
        return _answer(200, {"received": True, **duplicate})

    def _failed(self, error: Exception, id: str | None) -> Answer:
        """Nothing was stored for certain, so the provider must send it again."""
        # The reason may contain paths of this machine; the operator has it from `on_problem`.
        message = f"the event could not be stored: {error}"
        self._report(Problem(503, "store_failed", message, error, id))
        answer = _answer(503, _error("store_failed", "the event was not stored"))
        retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return Answer(answer.status, answer.body, {**answer.headers, **retry})

    def _refuse(
        self, status: int, code: str, message: str, error: Exception | None = None
    ) -> Answer:
        self._report(Problem(status, code, message, error))
        return _answer(status, _error(code, message))

    def _may_diagnose(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._diagnosed_at < DIAGNOSE_EVERY_SECONDS:
                return False
            self._diagnosed_at = now
            return True

    def _report(self, problem: Problem) -> None:
        if self._on_problem:
            # What fails in the report must not change the answer.
            with contextlib.suppress(Exception):
                self._on_problem(problem)


def _answer(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    try:
        value = loads(text, parse_constant=_no_constant)
    except ValueError:
        raise ValueError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the body is not a JSON object")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _default_id(event: dict[str, Any], verified: Verified, body: bytes) -> object:
    """The signed id counts first: the body of a third party may be a record, with the id of that
    record. For restive both are the id of the event. A request without a time verifies for ever,
    so an id in a header that is not signed would let anybody send it again."""
    if verified.id is not None:
        return verified.id
    id = event.get("id")
    if verified.timestamp is not None or (isinstance(id, str) and id):
        return id
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


_Networks = Sequence[Union[ipaddress.IPv4Network, ipaddress.IPv6Network]]


def _is_in(networks: _Networks, text: str | None) -> bool:
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return False
    # An IPv4 address of a socket for both versions.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in networks)


def fingerprint_of(event: Mapping[str, Any]) -> str:
    """The same for each delivery of an event: ``pending_webhooks`` counts deliveries, so it may
    change between two of them."""
    kept = {name: value for name, value in event.items() if name != "pending_webhooks"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class _Threads:
    """Runs ``Receiver.accept`` in threads of its own, with a deadline and a bounded queue."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._executor = ThreadPoolExecutor(STORE_THREADS, "restive-receiver")
        self._lock = threading.Lock()
        self._waiting = 0

    def accept(self, *request: Any) -> Answer:
        job = self._submit(request)
        if isinstance(job, Answer):
            return job
        try:
            return job.result(STORE_SECONDS)
        except Late:
            return self._late(job)

    async def accept_async(self, *request: Any) -> Answer:
        job = self._submit(request)
        if isinstance(job, Answer):
            return job
        waiting = asyncio.wrap_future(job)
        try:
            # Not `wait_for`: a thread that has begun cannot be cancelled.
            done, _ = await asyncio.wait({waiting}, timeout=STORE_SECONDS)
        except asyncio.CancelledError:
            job.cancel()
            raise
        return waiting.result() if done else self._late(job)

    def _submit(self, request: tuple[Any, ...]) -> Future[Answer] | Answer:
        """The answer if it cannot be done."""
        with self._lock:
            is_full = self._waiting >= MAX_WAITING_REQUESTS
            self._waiting += not is_full
        if is_full:
            count = MAX_WAITING_REQUESTS
            reason = f"{count} requests wait for the store: it is slow or hangs"
            return self._receiver.not_stored(reason)
        held = [request]
        try:
            job = self._executor.submit(lambda: self._receiver.accept(*held.pop()))
        except RuntimeError as error:
            # No thread could be started. The call may be in the queue all the same.
            held.clear()
            self._ended()
            return self._receiver.not_stored(str(error))
        job.add_done_callback(self._ended)
        # The queue keeps what was cancelled until a thread is free.
        job.add_done_callback(lambda _: held.clear())
        return job

    def _ended(self, _: object = None) -> None:
        with self._lock:
            self._waiting -= 1

    def _late(self, job: Future[Answer]) -> Answer:
        # If it has not begun, it is not stored.
        job.cancel()
        return self._receiver.not_stored(f"the store did not answer within {STORE_SECONDS} s")


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def wsgi_app(receiver: Receiver) -> WsgiApp:
    """The receiver as a WSGI application: mount it at the path of the endpoint."""

    threads = _Threads(receiver)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = _wsgi_answer(receiver, threads, environ)
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        start_response(f"{answer.status} {_PHRASES.get(answer.status, 'Status')}", headers)
        return [answer.body]

    return app


_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    405: "Method Not Allowed",
    413: "Content Too Large",
    503: "Service Unavailable",
}


def _wsgi_answer(receiver: Receiver, threads: _Threads, environ: dict[str, Any]) -> Answer:
    method = environ.get("REQUEST_METHOD", "")
    secure = environ.get("wsgi.url_scheme") == "https"
    source = Source(secure, environ.get("REMOTE_ADDR"))
    refused = receiver.check(method, source)
    if refused:
        return refused
    text = environ.get("CONTENT_LENGTH") or ""
    # Longer ones are too large, and Python does not convert all of them.
    length = int(text[:20]) if text.isascii() and text.isdigit() else None
    # A chunked body has no length; servers that support it mark the end of the input.
    endless = environ.get("wsgi.input_terminated") is True
    limit = receiver.max_body_bytes
    if length is not None and length > limit:
        return receiver.too_large()
    asked = limit + 1 if length is None and endless else length or 0
    try:
        body = _read(environ["wsgi.input"], asked)
    except OSError:
        return receiver.incomplete()
    if length is not None and len(body) < length:
        return receiver.incomplete()
    headers = [
        (name[5:].replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    ]
    return threads.accept(method, headers, body, source)


def _read(stream: Any, size: int) -> bytes:
    chunks = []
    while size > 0:
        chunk = stream.read(size)
        if not chunk:
            break
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def asgi_app(receiver: Receiver) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The receiver as an ASGI application: mount it at the path of the endpoint."""

    threads = _Threads(receiver)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            raise ValueError(f"the receiver does not serve {scope['type']}")
        answer = await _asgi_answer(receiver, threads, scope, receive)
        if answer is None:
            return  # The client is gone.
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in answer.headers.items()
        ]
        headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    return app


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            return await send({"type": "lifespan.shutdown.complete"})


async def _asgi_answer(
    receiver: Receiver, threads: _Threads, scope: Scope, receive: Receive
) -> Answer | None:
    client = scope.get("client")
    source = Source(scope.get("scheme") == "https", client[0] if client else None)
    refused = receiver.check(scope["method"], source)
    if refused:
        return refused
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            receiver.incomplete()
            return None
        body += message.get("body", b"")
        if len(body) > receiver.max_body_bytes:
            return receiver.too_large()
        if not message.get("more_body"):
            break
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    ]
    # The store waits for the disk, so it must not run in the event loop.
    return await threads.accept_async(scope["method"], headers, bytes(body), source)
