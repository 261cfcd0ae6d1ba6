"""Missed events are queued in the order in which they were created, whatever the order of the
list."""

import asyncio
import time
import unittest

from harness import KEY, Server
from restive_client import AsyncClient, Client
from restive_client.receiver import SqliteInbox, Worker, async_reconcile, reconcile


def event(number, created, **more):
    return {"id": f"e{number}", "type": "a.b", "created": created, **more}


def ids(events):
    return [one["id"] for one in events]


class Reconciliation(unittest.TestCase):
    def inbox(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        return store

    def handled(self, store):
        found = []

        def handler(event, _):
            data = event.get("data")
            found.append((event["type"], data["object"]["id"]) if data else event["id"])

        worker = Worker(store, handler)
        while worker.once():
            pass
        return found

    def test_a_deleted_record_does_not_come_back_also_if_a_page_fails(self):
        with Server() as server, Client(server.url, KEY) as client:
            books = client.collection("/v1/books")
            expected = []
            # More than a page.
            for count in range(60):
                book = books.create({"title": f"Book {count}", "author": "Ann", "price": 1})
                expected.append(("book.created", book["id"]))
                if count % 2 == 0:
                    books.update(book["id"], {"price": 2})
                    books.delete(book["id"])
                    for kind in ("updated", "deleted"):
                        expected.append((f"book.{kind}", book["id"]))

            class Cut:
                def list(self, *query):
                    for number, entry in enumerate(client.list(*query)):
                        if number >= 110:
                            raise OSError("cut")
                        yield entry

            store = self.inbox()
            with self.assertRaises(OSError):
                reconcile(Cut(), store, types=["book.*"])
            self.assertIsNone(store.setting("reconciled_until"))
            before = store.counts()["pending"]
            missing = reconcile(client, store, types=["book.*"])
            self.assertEqual(missing, len(expected) - before)
            self.assertEqual(reconcile(client, store, types=["book.*"]), 0)
            self.assertEqual(self.handled(store), expected)

            other = self.inbox()

            async def run():
                async with AsyncClient(server.url, KEY) as client:
                    return await async_reconcile(client, other, types=["book.*"])

            self.assertEqual(asyncio.run(run()), len(expected))
            self.assertEqual(self.handled(other), expected)

    def test_a_list_with_the_newest_first_is_turned_around(self):
        """As an API in the form of Stripe lists them, which has no ``sort``."""
        begin = int(time.time()) - 1000
        oldest = [event(number, begin + number) for number in range(250)]
        odd = [None, {"id": "none", "type": "a.b"}]
        text = "x" * 5 * 1024 * 1024
        large = [event(number, begin + number, text=text) for number in range(10)]
        same = [event(number, begin) for number in range(5)]
        last = event(9, begin + 9)
        parts = "e3 e4 e5 e6 e7 e8 e9 e0 e1 e2".split()
        queries = []
        for name, entries, wanted in (
            ("oldest first", oldest, ids(oldest)),
            ("newest first", oldest[::-1], ids(oldest)),
            ("first without a time", odd + oldest[::-1], [*ids(oldest), "none"]),
            ("last without a time", oldest + odd, [*ids(oldest), "none"]),
            ("of the same second, as they are listed", same, ids(same)),
            ("of the same second, newest first", [last, *same[::-1]], [*ids(same), "e9"]),
            ("too large for the memory, in parts", large[::-1], parts),
            ("large", large, ids(large)),
        ):

            class Provider:
                def list(self, _, query, entries=entries):
                    queries.append(query)
                    return iter(entries)

            with self.subTest(name):
                store = self.inbox()
                self.assertEqual(reconcile(Provider(), store), len(wanted))
                self.assertEqual(queries[-1]["sort"], "created")
                self.assertEqual(self.handled(store), wanted)
                newest = max(one.get("created", 0) for one in entries if one)
                self.assertEqual(store.setting("reconciled_until"), str(newest))

    def test_a_list_that_breaks_off_moves_no_position(self):
        begin = int(time.time()) - 1000
        for step in (1, -1):

            class Cut:
                def list(self, *_, step=step):
                    for at in range(3):
                        yield event(at, begin + at * step)
                    raise OSError("cut")

            store = self.inbox()
            store.set_setting("reconciled_until", str(begin - 500))
            with self.assertRaises(OSError):
                reconcile(Cut(), store)
            self.assertEqual(store.setting("reconciled_until"), str(begin - 500))


if __name__ == "__main__":
    unittest.main()
