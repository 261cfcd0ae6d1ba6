"""A client from openapi-python-client: creates, lists and pages."""

import os

from bookshop_client import AuthenticatedClient
from bookshop_client.api.books import create_book, list_books
from bookshop_client.models import Book, BookCreate, BookList
from bookshop_client.types import UNSET, Unset

client = AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["KEY"])
for title in ["one", "two", "three"]:
    made = create_book.sync(client=client, body=BookCreate(title=title, author="python"))
    assert isinstance(made, Book) and made.title == title, made
found: list[str] = []
after: str | Unset = UNSET
while True:
    page = list_books.sync(client=client, author="python", limit=2, after=after)
    assert isinstance(page, BookList), page
    found += [book.title for book in page.data]
    following = page.pagination.next_cursor
    if not isinstance(following, str):
        break
    after = following
assert found == ["three", "two", "one"], found
