"""Lists: pages, and all records across pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ._core import Meta, meta
from .errors import InvalidResponse

T = TypeVar("T")


class Page(Generic[T]):
    """One page of a list."""

    def __init__(self, body: Any, query: Mapping[str, Any]) -> None:
        if not isinstance(body, dict) or not isinstance(body.get("data"), list):
            raise InvalidResponse('not a list: the response has no "data"')
        pagination = body.get("pagination") or {}
        self.data: list[T] = body["data"]
        self.meta: Meta | None = meta(body)
        #: Position of the log at which the page was read.
        self.position = self.meta.position if self.meta else None
        self.next_cursor: str | None = pagination.get("next_cursor")
        #: Number of records of all pages; only if the list was asked for with ``page``.
        self.total: int | None = pagination.get("total")
        self.next_query: dict[str, Any] | None = None
        page, last = pagination.get("page"), pagination.get("total_pages")
        if self.next_cursor and pagination.get("has_more") is not False:
            if self.next_cursor == query.get("after"):
                raise InvalidResponse("the server returned the same cursor again")
            self.next_query = {**query, "after": self.next_cursor}
        elif page and last and page < last:
            self.next_query = {**query, "page": page + 1}

    @property
    def has_more(self) -> bool:
        return self.next_query is not None

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class List(Generic[T]):
    """Iterates over every record of all pages. Each iteration asks the server again."""

    def __init__(self, fetch: Callable[[Mapping[str, Any]], Any], query: Mapping[str, Any]) -> None:
        self._fetch = fetch
        self._query = query

    def first(self) -> Page[T]:
        """The first page."""
        return Page(self._fetch(self._query), self._query)

    def pages(self) -> Iterator[Page[T]]:
        query: Mapping[str, Any] | None = self._query
        while query is not None:
            page: Page[T] = Page(self._fetch(query), query)
            yield page
            query = page.next_query

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.data

    def to_list(self, max: int | None = None) -> list[T]:
        """All records, at most ``max`` of them."""
        records: list[T] = []
        if max is not None and max <= 0:
            return records
        for record in self:
            records.append(record)
            if max is not None and len(records) >= max:
                break
        return records


class AsyncList(Generic[T]):
    """Iterates over every record of all pages with ``async for``."""

    def __init__(
        self, fetch: Callable[[Mapping[str, Any]], Awaitable[Any]], query: Mapping[str, Any]
    ) -> None:
        self._fetch = fetch
        self._query = query

    async def first(self) -> Page[T]:
        """The first page."""
        return Page(await self._fetch(self._query), self._query)

    async def pages(self) -> AsyncIterator[Page[T]]:
        query: Mapping[str, Any] | None = self._query
        while query is not None:
            page: Page[T] = Page(await self._fetch(query), query)
            yield page
            query = page.next_query

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for record in page.data:
                yield record

    async def to_list(self, max: int | None = None) -> list[T]:
        """All records, at most ``max`` of them."""
        records: list[T] = []
        if max is not None and max <= 0:
            return records
        async for record in self:
            records.append(record)
            if max is not None and len(records) >= max:
                break
        return records
