"""All operations of one collection, for code without generated classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._core import path
from ._lists import AsyncList, List

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client

Query = Mapping[str, Any]


class Collection:
    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = path

    def list(self, query: Query | None = None, **options: Any) -> List[Any]:
        return self.client.list(self.path, query, **options)

    def get(self, id: str | int, query: Query | None = None, **options: Any) -> Any:
        return self.client.get(self._at(id), query, **options)

    def create(self, body: Mapping[str, Any], **options: Any) -> Any:
        return self.client.post(self.path, body, **options)

    def replace(self, id: str | int, body: Mapping[str, Any], **options: Any) -> Any:
        """Fields that the body omits become null or their default."""
        return self.client.put(self._at(id), body, **options)

    def update(self, id: str | int, patch: Mapping[str, Any], **options: Any) -> Any:
        return self.client.patch(self._at(id), patch, **options)

    def delete(self, id: str | int, **options: Any) -> None:
        self.client.delete(self._at(id), **options)

    def action(self, id: str | int, name: str, params: Any = None, **options: Any) -> Any:
        return self.client.post(self._at(id) + path("/{}", name), params, **options)

    def _at(self, id: str | int) -> str:
        return self.path + path("/{}", id)


class AsyncCollection:
    def __init__(self, client: AsyncClient, path: str) -> None:
        self.client = client
        self.path = path

    def list(self, query: Query | None = None, **options: Any) -> AsyncList[Any]:
        return self.client.list(self.path, query, **options)

    async def get(self, id: str | int, query: Query | None = None, **options: Any) -> Any:
        return await self.client.get(self._at(id), query, **options)

    async def create(self, body: Mapping[str, Any], **options: Any) -> Any:
        return await self.client.post(self.path, body, **options)

    async def replace(self, id: str | int, body: Mapping[str, Any], **options: Any) -> Any:
        """Fields that the body omits become null or their default."""
        return await self.client.put(self._at(id), body, **options)

    async def update(self, id: str | int, patch: Mapping[str, Any], **options: Any) -> Any:
        return await self.client.patch(self._at(id), patch, **options)

    async def delete(self, id: str | int, **options: Any) -> None:
        await self.client.delete(self._at(id), **options)

    async def action(self, id: str | int, name: str, params: Any = None, **options: Any) -> Any:
        return await self.client.post(self._at(id) + path("/{}", name), params, **options)

    def _at(self, id: str | int) -> str:
        return self.path + path("/{}", id)
