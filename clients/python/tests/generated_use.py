"""Uses the client that ``restive generate python`` writes for the bookshop. Checked by mypy with all
strict options, which also reports an ignored mistake that is none."""

from __future__ import annotations

import time
from typing import Any

from bookshop import NULL, AsyncBookshop, Book, Bookshop, BookshopEvent, Order


def use(url: str, key: str) -> dict[str, Any]:
    with Bookshop(url, key) as shop:
        author = f'Tolkien, J. R. R. "{time.monotonic_ns()}"'
        for title in "ABC":
            shop.books.create({"title": title, "author": author})
        titles: list[str] = []
        for book in shop.books.list(author=author, sort="-title", limit=2):
            titles.append(book["title"])
        first, second, _ = list(shop.books.list(author=author, sort=["title"]))
        priced: Book = shop.books.update(first["id"], {"price": 12.5})
        bounded = [book["title"] for book in shop.books.list(author=author, min_price=12)]
        unpriced = shop.books.list(author=[author, "nobody"], price=NULL)
        review = shop.books.reviews(first["id"]).create({"rating": 5})
        order: Order = shop.orders.create({"book": first["id"], "quantity": 2})
        cancelled = shop.orders.cancel(order["id"], {"reason": "late"})
        open_orders = list(shop.orders.list(status=["created", "paid"], book=first["id"]))
        shop.messages.create({"from": "ann", "text": "hello"})
        found = list(shop.messages.list(from_="ann"))
        polled = shop.messages.poll(since=0)
        shop.books.delete(second["id"])
        return {
            "titles": titles,
            "price": priced["price"],
            "bounded": bounded,
            "unpriced": sorted(book["title"] for book in unpriced if book["id"] != second["id"]),
            "rating": [review["rating"], review["book"] == first["id"]],
            "status": [order["status"], cancelled["status"], cancelled["cancel_reason"]],
            "open": len(open_orders),
            "found": len(found) > 0,
            "polled": polled[-1]["text"],
        }


async def use_async(url: str, key: str) -> list[str]:
    async with AsyncBookshop(url, key) as shop:
        author = f"async-{time.monotonic_ns()}"
        for title in "AB":
            await shop.books.create({"title": title, "author": author})
        titles = [book["title"] async for book in shop.books.list(author=author, sort="title")]
        order = await shop.orders.create({"book": (await first(shop, author))["id"]})
        paid = await shop.orders.pay(order["id"], options={"idempotency_key": author})
        return [*titles, paid["status"]]


async def first(shop: AsyncBookshop, author: str) -> Book:
    async for book in shop.books.list(author=author):
        return book
    raise LookupError(author)


def first_message(url: str, key: str) -> str:
    with Bookshop(url, key) as shop:
        for message in shop.follow(since="0"):
            if message.type == "book.created":
                return message.data["data"]["object"]["title"]
            if message.type == "message":
                return message.data["text"]
    return "nothing"


def describe(event: BookshopEvent) -> str | None:
    if event["type"] == "book.updated":
        return str(event["data"].get("previous_attributes"))
    if event["type"] == "report.ready":
        return str(event["data"]["object"]["rows"])
    if event["type"] == "order.paid":
        return event["data"]["object"]["status"]
    return None


def mistakes(shop: Bookshop, order: Order) -> None:
    """Never called: mistakes that a type checker must find."""
    shop.books.list(colour="red")  # type: ignore[call-arg]
    shop.orders.list(status="nonsense")  # type: ignore[arg-type]
    shop.books.list(sort="isbn")  # type: ignore[arg-type]
    shop.books.create({"title": "Dune"})  # type: ignore[typeddict-item]
    shop.orders.update(order["id"], {"status": "paid"})  # type: ignore[typeddict-unknown-key]
    shop.messages.delete(1)  # type: ignore[attr-defined]
