"""The sync API client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from ._collection import Collection
from ._core import Core, Key, connection_error, retry_delay, text_of
from ._lists import List
from .errors import AuthenticationFailed, RestiveError
from .follow import Follower

Query = Mapping[str, Any]


class Client:
    """A client of one restive service.

    Options of the methods: ``idempotency_key``, ``if_match`` (an ETag or a record), ``query`` (of
    writes), ``headers``, ``timeout``, ``max_retries``, ``version``. Close it, or use ``with``.
    """

    def __init__(
        self,
        url: str,
        key: Key = None,
        *,
        version: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 3,
        cache: int = 100,
        http: httpx.Client | None = None,
    ) -> None:
        self._core = Core(url, version, timeout, max_retries, cache)
        self._key = key
        self._credential: str | None = None
        self._http = http or httpx.Client()

    @property
    def url(self) -> str:
        return self._core.url

    @property
    def version(self) -> str | None:
        return self._core.version

    @property
    def can_renew(self) -> bool:
        """Whether a refused key can be replaced."""
        return callable(self._key)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(self, path: str, query: Query | None = None, **options: Any) -> List[Any]:
        def fetch(asked: Query) -> Any:
            return self.request("GET", path, query=asked, **options)

        return List(fetch, dict(query or {}))

    def get(self, path: str, query: Query | None = None, **options: Any) -> Any:
        return self.request("GET", path, query=query, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """Creates a record, or runs an action."""
        return self.request("POST", path, body=body, **options)

    def put(self, path: str, body: Any, **options: Any) -> Any:
        return self.request("PUT", path, body=body, **options)

    def patch(self, path: str, body: Any, **options: Any) -> Any:
        """A JSON merge patch: null removes a value, fields that it omits stay."""
        return self.request("PATCH", path, body=body, **options)

    def delete(self, path: str, **options: Any) -> None:
        self.request("DELETE", path, **options)

    def collection(self, path: str) -> Collection:
        return Collection(self, path)

    def follow(self, **options: Any) -> Follower:
        """Follows the event log; see ``Follower``."""
        return Follower(self, **options)

    def request(self, method: str, path: str, **options: Any) -> Any:
        """One request, repeated while that is safe and useful."""
        call = self._core.call(method, path, **options)
        attempt = 0
        refreshed = False
        while True:
            try:
                headers = self._core.headers(call, self.credential())
                try:
                    with self._http.stream(
                        method,
                        call.url,
                        headers=headers,
                        content=call.content,
                        timeout=call.timeout,
                    ) as response:
                        body = text_of(response)
                except httpx.HTTPError as error:
                    raise connection_error(call, error) from error
                return self._core.read(call, response, body)
            except RestiveError as error:
                refused = isinstance(error, AuthenticationFailed)
                if refused and callable(self._key) and not refreshed:
                    refreshed = True
                    self.credential(refused=True)
                    continue
                delay = retry_delay(error, attempt, call)
                if delay is None:
                    raise
                attempt += 1
                time.sleep(delay)

    def credential(self, refused: bool = False) -> str | None:
        """The key, from the function if there is one."""
        if not callable(self._key):
            return self._key
        if self._credential is None or refused:
            credential = self._key(refused)
            if credential != self._credential:
                self._core.forget()
            self._credential = credential
        return self._credential

    def stream(self, url: str, headers: dict[str, str], token: str | None, timeout: float) -> Any:
        """An open response, for followers."""
        credential = token or self.credential()
        if credential:
            headers = {**headers, "Authorization": f"Bearer {credential}"}
        limits = httpx.Timeout(10.0, read=timeout)
        return self._http.stream("GET", url, headers=headers, timeout=limits)
