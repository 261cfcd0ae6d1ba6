"""The async API client."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

import httpx

from ._collection import AsyncCollection
from ._core import AsyncKey, Core, async_text_of, connection_error, retry_delay
from ._lists import AsyncList
from .errors import AuthenticationFailed, RestiveError
from .follow import AsyncFollower

Query = Mapping[str, Any]


class AsyncClient:
    """``Client`` for asyncio: the same methods with ``await``, lists with ``async for``."""

    def __init__(
        self,
        url: str,
        key: AsyncKey = None,
        *,
        version: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 3,
        cache: int = 100,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._core = Core(url, version, timeout, max_retries, cache)
        self._key = key
        self._credential: str | None = None
        self._http = http or httpx.AsyncClient()

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

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def list(self, path: str, query: Query | None = None, **options: Any) -> AsyncList[Any]:
        async def fetch(asked: Query) -> Any:
            return await self.request("GET", path, query=asked, **options)

        return AsyncList(fetch, dict(query or {}))

    async def get(self, path: str, query: Query | None = None, **options: Any) -> Any:
        return await self.request("GET", path, query=query, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """Creates a record, or runs an action."""
        return await self.request("POST", path, body=body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Any:
        return await self.request("PUT", path, body=body, **options)

    async def patch(self, path: str, body: Any, **options: Any) -> Any:
        """A JSON merge patch: null removes a value, fields that it omits stay."""
        return await self.request("PATCH", path, body=body, **options)

    async def delete(self, path: str, **options: Any) -> None:
        await self.request("DELETE", path, **options)

    def collection(self, path: str) -> AsyncCollection:
        return AsyncCollection(self, path)

    def follow(self, **options: Any) -> AsyncFollower:
        """Follows the event log; see ``Follower``."""
        return AsyncFollower(self, **options)

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """One request, repeated while that is safe and useful."""
        call = self._core.call(method, path, **options)
        attempt = 0
        refreshed = False
        while True:
            try:
                headers = self._core.headers(call, await self.credential())
                try:
                    async with self._http.stream(
                        method,
                        call.url,
                        headers=headers,
                        content=call.content,
                        timeout=call.timeout,
                    ) as response:
                        body = await async_text_of(response)
                except httpx.HTTPError as error:
                    raise connection_error(call, error) from error
                return self._core.read(call, response, body)
            except RestiveError as error:
                refused = isinstance(error, AuthenticationFailed)
                if refused and callable(self._key) and not refreshed:
                    refreshed = True
                    await self.credential(refused=True)
                    continue
                delay = retry_delay(error, attempt, call)
                if delay is None:
                    raise
                attempt += 1
                await asyncio.sleep(delay)

    async def credential(self, refused: bool = False) -> str | None:
        """The key, from the function if there is one."""
        if not callable(self._key):
            return self._key
        if self._credential is None or refused:
            result = self._key(refused)
            credential = await result if inspect.isawaitable(result) else result
            if credential != self._credential:
                self._core.forget()
            self._credential = credential
        return self._credential

    async def stream(
        self, url: str, headers: dict[str, str], token: str | None, timeout: float
    ) -> Any:
        """An open response, for followers."""
        credential = token or await self.credential()
        if credential:
            headers = {**headers, "Authorization": f"Bearer {credential}"}
        limits = httpx.Timeout(10.0, read=timeout)
        return self._http.stream("GET", url, headers=headers, timeout=limits)
