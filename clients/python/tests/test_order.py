"""The order of events about one resource: one at a time, and old states are marked."""

import asyncio
import json
import os
import sqlite3
import tempfile
import threading
import time
import unittest

from harness import changed, eventually
from restive_client.receiver import AsyncWorker, SqliteInbox, Worker

OLD_TABLES = """
CREATE TABLE restive_inbox (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT,
  fingerprint TEXT NOT NULL, received_at REAL NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL, due_at REAL NOT NULL, leased_until REAL NOT NULL, error TEXT);
CREATE TABLE restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

#: Members of the object and of the event, older and newer, and whether they are comparable.
REVISIONS = [
    ({"updated_at": "2026-11-01T00:00Z"}, {}, {"updated_at": "2026-11-01T00:00:01Z"}, {}, True),
    ({"updated_at": "2026-11-01T00:00:00"}, {}, {"updated_at": "2026-11-01T00:00:01"}, {}, False),
    ({"updated_at": "2026-11-01T00:01Z"}, {}, {"updated_at": "2026-11-01T00:01.1Z"}, {}, True),
    (
        {"updated_at": "2026-11-01T00:00:00Z", "version": 9},
        {},
        {"updated_at": "2026-11-02T00:00:00Z", "version": 1},
        {},
        True,
    ),
    ({"version": 9}, {}, {"version": 10}, {}, True),
    ({"version": 9, "updated_at": "soon"}, {}, {"version": 10}, {}, True),
    ({"version": 9, "updated": 7}, {}, {"version": 10, "updated": 1}, {}, True),
    ({"updated": 8}, {"sequence": 9}, {"updated": 1}, {"sequence": 10}, True),
    ({"updated": 9}, {"created": 7}, {"updated": 10}, {"created": 1}, True),
    ({"updated_at": 9}, {}, {"updated": 10}, {}, True),
    ({}, {"created": 9}, {}, {"created": 10}, True),
    ({"version": 9}, {}, {"updated": 10}, {}, False),
    ({"version": 9}, {}, {"updated_at": "2026-11-01T00:00:00Z"}, {}, False),
    ({"version": -1}, {}, {"version": 10}, {}, False),
    ({"version": True}, {}, {"version": 10}, {}, False),
    ({"version": "9"}, {}, {"version": 10}, {}, False),
    ({"version": 9.5}, {}, {"version": 10}, {}, False),
    ({}, {}, {"version": 10}, {}, False),
]


class Order(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "inbox.db")
        self.store = SqliteInbox(self.path)
        self.addCleanup(lambda: self.store.close())

    def put(self, id, resource, version):
        self.store.put(id, "t", changed(id, resource, {"version": version}), id)

    def claim(self, at):
        found = self.store.claim(at, 500)
        return found and (found.id, found.stale)

    def all(self):
        found = []
        while claimed := self.claim(time.time()):
            found.append(claimed)
            self.store.complete(claimed[0])
        return found

    def test_events_of_a_resource_are_handed_out_one_at_a_time(self):
        store = self.store
        for id, resource, version in (("a1", "a", 1), ("a2", "a", 2), ("b1", "b", 1)):
            self.put(id, resource, version)
        store.put("c", "t", '{"id":"c","data":{"object":{"id":"a"}}}', "c")
        self.assertEqual(self.claim(1000), ("a1", False))
        self.assertEqual(self.claim(1000), ("b1", False), "the other event of `a` waits")
        self.assertEqual(self.claim(1000), ("c", False), "an object of another type")
        self.assertIsNone(self.claim(1000))
        self.assertEqual(store.next_due(), 1500, "until the lease ends")
        for id in ("b1", "c"):
            store.complete(id)
        store.fail("a1", "no", 1300)
        self.assertEqual(self.claim(1100), ("a2", False), "a retry that is not due blocks nothing")
        self.assertIsNone(self.claim(1300))
        store.complete("a2")
        self.assertEqual(self.claim(1300), ("a1", True), "it would overwrite newer state")
        self.assertIsNone(self.claim(1300))
        # A lease ends with its process.
        self.assertEqual(self.claim(1800), ("a1", True))
        store.complete("a1")
        self.put("a3", "a", 2)
        self.put("a4", "a", 1)
        self.assertEqual(self.claim(1800), ("a3", False), "as a deletion: the revision is equal")
        store.complete("a3")
        self.assertEqual(self.claim(1800), ("a4", True), "the stale one has changed nothing")
        store.fail("a4", "never", None)
        store.retry("a4")
        self.assertEqual(self.claim(1900), ("a4", True))

    def test_a_long_queue_of_one_resource_keeps_no_other_event_waiting(self):
        store = self.store
        with store._use() as db:
            db.execute("BEGIN")
            for number in range(5000):
                db.execute(
                    "INSERT INTO restive_inbox (id, type, body, fingerprint, received_at, resource,"
                    " state, attempts, due_at, leased_until)"
                    " VALUES (?, 't', '{}', '', 0, 'hot', 'pending', 0, 0, 0)",
                    (f"hot{number}",),
                )
            db.execute("COMMIT")
        self.assertEqual(self.claim(1000), ("hot0", False))
        self.put("other", "a", 1)
        self.assertEqual(store.next_due(), 0)
        self.assertEqual(self.claim(1000), ("other", False))
        self.assertIsNone(self.claim(1000))
        store.complete("hot0")
        self.assertEqual(self.claim(1000), ("hot1", False))

    def test_an_old_retry_is_marked_or_skipped(self):
        def check(work):
            for stale in ("deliver", "skip"):
                self.store.prune(time.time() + 1)
                for number in range(1, 6):
                    for id in "ab":
                        self.put(f"{id}{number}", id, number)
                running, seen = set(), []

                def handle(event, context, running=running, seen=seen):
                    object = event["data"]["object"]
                    # Others would begin in the meantime.
                    yield object["id"] in running or running.add(object["id"])
                    running.discard(object["id"])
                    if context.id == "a1" and context.attempt == 1:
                        raise ValueError("no")
                    if object["id"] == "a":
                        seen.append((object["version"], context.stale))

                work(handle, {"concurrency": 4, "retries": (0.3,), "stale": stale})
                newer = [(version, False) for version in (2, 3, 4, 5)]
                self.assertEqual(seen, newer if stale == "skip" else [*newer, (1, True)])

        def threads(handle, options):
            twice = []

            def handler(event, context):
                for is_running in handle(event, context):
                    twice.extend([event] if is_running else [])
                    threading.Event().wait(0.002)

            worker = Worker(self.store, handler, **options).start()
            eventually(lambda: self.store.counts()["done"] == 10, "all are done")
            worker.stop()
            self.assertEqual(twice, [], "one at a time")

        def tasks(handle, options):
            twice = []

            async def handler(event, context):
                for is_running in handle(event, context):
                    twice.extend([event] if is_running else [])
                    await asyncio.sleep(0.002)

            async def run():
                work = asyncio.create_task(AsyncWorker(self.store, handler, **options).run())
                while self.store.counts()["done"] < 10:
                    await asyncio.sleep(0.01)
                work.cancel()

            asyncio.run(asyncio.wait_for(run(), 20))
            self.assertEqual(twice, [], "one at a time")

        check(threads)
        check(tasks)
        for kind in (Worker, AsyncWorker):
            with self.assertRaises(ValueError):
                kind(self.store, print, stale="Skip")

    def test_the_newest_state_of_a_resource_survives_the_process(self):
        for id, resource, version in (("a2", "a", 2), ("a3", "a", 3), ("b2", "b", 2)):
            self.put(id, resource, version)
        for id in ("a3", "a2"):
            self.store.complete(id)
        self.store.close()
        self.store = SqliteInbox(self.path)
        self.put("a1", "a", 1)
        self.assertEqual(self.all(), [("b2", False), ("a1", True)])
        # With its event, the state is forgotten.
        self.assertEqual(self.store.prune(time.time() + 1), 4)
        self.put("a0", "a", 0)
        self.assertEqual(self.all(), [("a0", False)])

    def test_the_revision_of_a_resource_is_that_of_the_kit(self):
        for number, (older, of_older, newer, of_newer, is_comparable) in enumerate(REVISIONS):
            with self.subTest(older=older, newer=newer):
                bodies = ((newer, of_newer), (older, of_older), (newer, of_newer))
                for part, (object, event) in enumerate(bodies):
                    id = f"{number} {part}"
                    data = {"object": {"id": f"{number}", **object}}
                    self.store.put(id, "t", json.dumps({"id": id, **event, "data": data}), id)
                stale = [is_stale for _, is_stale in self.all()]
                self.assertEqual(stale, [False, is_comparable, False])

    def test_a_body_without_a_resource_is_processed(self):
        bodies = ["no JSON", "[]", "7", '{"data":7}', '{"data":{"object":[]}}']
        bodies += ['{"data":{"object":{"id":"\\ud800"}}}', "[" * 100_000, '{"data":{"object":{}}}']
        for number, body in enumerate(bodies):
            self.assertEqual(self.store.put(f"{number}", "t", body, ""), "stored", body[:50])
        self.assertEqual(len(self.all()), len(bodies))

    def test_a_file_of_an_earlier_release_opens(self):
        self.store.close()
        os.remove(self.path)
        old = sqlite3.connect(self.path, isolation_level=None)
        old.executescript(OLD_TABLES)
        bodies = [("old", None, "done"), ("broken", "no JSON", "pending")]
        bodies += [
            (f"a{version}", changed("", "a", {"version": version}), "pending") for version in (2, 1)
        ]
        insert = "INSERT INTO restive_inbox VALUES (NULL, ?, 't', ?, '', 1, ?, 0, 0, 0, NULL)"
        old.executemany(insert, bodies)
        old.close()
        self.store = SqliteInbox(self.path)
        self.assertEqual(self.store.put("old", "t", "{}", ""), "known")
        self.assertEqual(self.all(), [("broken", False), ("a2", False), ("a1", True)])


if __name__ == "__main__":
    unittest.main()
