"""Workers: handlers that end in an unusual way, and results that the store does not take."""

import asyncio
import json
import os
import tempfile
import unittest
from unittest import mock

from harness import eventually
from restive_client import worker as module
from restive_client.receiver import AsyncWorker, SqliteInbox, Worker


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

    def test_a_failure_that_the_store_does_not_take_at_once_is_written_again(self):
        def handler(*_):
            raise ValueError("no")

        def threads(**options):
            self.assertTrue(Worker(self.store, handler, **options).once())

        def tasks(**options):
            self.assertTrue(asyncio.run(AsyncWorker(self.store, handler, **options).once()))

        for run in (threads, tasks):
            with self.subTest(run.__name__):
                self.put(run.__name__)
                fail, errors, times = self.store.fail, [], []

                def failing(id, error, retry_at, fail=fail, times=times):
                    times.append(retry_at)
                    if len(times) < 3:
                        raise TimeoutError("the inbox was busy")
                    fail(id, error, retry_at)

                def on_error(error, event, dead, errors=errors):
                    errors.append((str(error), event.attempt, dead))

                self.store.fail = failing
                with mock.patch.object(module, "STORE_RETRY_SECONDS", 0.01):
                    run(on_error=on_error, retries=(3600.0,))
                self.store.fail = fail
                busy = ("the inbox was busy", 1, False)
                self.assertEqual(errors, [("no", 1, False), busy, busy])
                self.assertEqual(len(set(times)), 1, "its delay begins when it fails")
                self.assertEqual(self.store.next_due(), times[0], "it is not leased any more")
                self.store.complete(run.__name__)

    def test_a_text_that_cannot_be_stored_keeps_no_other_event_waiting(self):
        class Silent(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        errors = {
            "half": ValueError("unknown customer \ud800"),
            "silent": Silent(),
            "refused": KeyError("refused"),
        }

        def handler(event, _):
            if event["id"] in errors:
                raise errors[event["id"]]

        fail = self.store.fail

        def picky(id, error, retry_at):
            if "refused" in error:
                raise TypeError("this text is not taken")
            fail(id, error, retry_at)

        self.store.fail = picky
        for id in (*errors, "good"):
            self.put(id)
        with mock.patch.object(module, "STORE_RETRY_SECONDS", 0.01):
            worker = Worker(self.store, handler, retries=(), on_error=lambda *_: None)
            while worker.once():
                pass
        self.assertEqual(self.store.counts(), {"pending": 0, "done": 1, "dead": 3})
        texts = {dead.id: dead.error for dead in self.store.dead()}
        shown = {"half": "unknown customer ?", "silent": "Silent", "refused": "KeyError"}
        self.assertEqual(texts, shown)

    def test_a_failure_is_not_written_again_after_its_lease(self):
        self.put("a")
        clock = [0.0]
        self.store.now = lambda: clock[0]

        def handler(*_):
            raise ValueError("no")

        fails = []

        def failing(id, *_):
            fails.append(id)
            clock[0] = 7200.0
            other = self.store.claim(clock[0], 60.0)
            self.assertEqual(other.attempt, 2, "another process has it")
            raise OSError("the disk is full")

        self.store.fail = failing
        with (
            mock.patch.object(module.time, "monotonic", lambda: clock[0]),
            mock.patch.object(module, "STORE_RETRY_SECONDS", 0.01),
        ):
            worker = Worker(self.store, handler, on_error=lambda *_: None)
            self.assertTrue(worker.once())
        self.assertEqual(fails, ["a"])
        self.assertIsNone(self.store.claim(clock[0] + 1, 60.0), "the other one still has it")

    def test_a_handler_that_ends_well_after_its_time_limit_is_not_called_again(self):
        calls = []

        async def handler(event, _):
            calls.append(event["id"])
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                if event["id"] == "fails":
                    raise ValueError("no") from None
                if event["id"] == "cancelled":
                    raise
                # It was too late to take it back, so it went on to its end.

        errors = []

        def on_error(error, *_):
            errors.append(str(error))

        options = {"timeout": 0.05, "retries": (), "on_error": on_error}
        worker = AsyncWorker(self.store, handler, **options)
        ids = ("ends", "fails", "cancelled")
        for id in ids:
            self.put(id)
            self.assertTrue(asyncio.run(worker.once()))
        self.assertFalse(asyncio.run(worker.once()))
        self.assertEqual(calls, list(ids))
        self.assertEqual(self.store.counts(), {"pending": 0, "done": 1, "dead": 2})
        self.assertEqual(errors, ["the handler did not end within 0.05 s"] * 2)

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
