"""Workers: handlers that end in an unusual way, and results that the store does not take."""

import asyncio
import json
import os
import tempfile
import unittest

from harness import eventually
from restive_client.receiver import SqliteInbox, Worker


class Panic(BaseException):
    """As extensions in Rust and some frameworks raise it: no ``Exception``."""


class Workers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = SqliteInbox(os.path.join(self.folder.name, "inbox.db"))
        self.addCleanup(self.store.close)

    def put(self, id):
        return self.store.put(id, "t", json.dumps({"id": id}), id)

    def test_a_handler_that_raises_no_exception_does_not_end_its_thread(self):
        raised = {"cancelled": asyncio.CancelledError(), "panics": Panic("lost")}
        for id in (*raised, "ok"):
            self.put(id)
        failed = []

        def handler(event, _):
            if event["id"] in raised:
                raise raised[event["id"]]

        def on_error(error, event, dead):
            failed.append((event.id, error.__cause__, dead))

        worker = Worker(self.store, handler, retries=(), on_error=on_error).start()
        self.addCleanup(worker.stop)
        eventually(lambda: self.store.counts()["pending"] == 0, "the thread goes on")
        worker.stop()
        self.assertEqual(self.store.counts(), {"pending": 0, "done": 1, "dead": 2})
        self.assertEqual(failed, [(id, error, True) for id, error in raised.items()])
        errors = {dead.id: dead.error for dead in self.store.dead()}
        self.assertEqual(errors["panics"], "the handler raised Panic('lost')")

    def test_an_interrupt_reaches_the_caller(self):
        self.put("a")

        def handler(*_):
            raise KeyboardInterrupt

        worker = Worker(self.store, handler)
        with self.assertRaises(KeyboardInterrupt):
            worker.once()
        self.assertEqual(worker.running(), {})


if __name__ == "__main__":
    unittest.main()
