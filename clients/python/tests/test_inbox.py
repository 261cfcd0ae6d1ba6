"""The inbox when the clock of the machine is set, and when several processes open it."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from harness import changed, eventually
from restive_client import inbox as module
from restive_client.receiver import AsyncWorker, SqliteInbox, Worker

OPEN = """
import sys, time
from restive_client.receiver import SqliteInbox
store = SqliteInbox(sys.argv[1], shared=sys.argv[2] == "shared")
print("open", flush=True)
time.sleep(60 if sys.argv[3:] else 0)
"""


def plans(store, action):
    """How SQLite runs the statements of the action, as one text."""
    statements = []
    store._db.set_trace_callback(statements.append)
    action()
    store._db.set_trace_callback(None)
    lines = []
    for statement in statements:
        if statement.startswith("--") or "restive_settings" in statement:
            continue  # A part of a trigger, or a setting.
        lines.extend(row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}"))
    return "\n".join(lines)


def in_fork(action):
    """What the action returns or raises in a child process, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


class Inbox(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "inbox.db")
        self.store = SqliteInbox(self.path)
        self.addCleanup(lambda: self.store.close())

    def put(self, id):
        return self.store.put(id, "t", json.dumps({"id": id}), id)

    def test_a_clock_that_was_ahead_delays_no_retry(self):
        real, day = time.time, 86_400
        # Days by which the clock is wrong when the inbox is opened, and when the handler fails.
        for start, later in ((0, 365), (365, 365), (0.5, 0.5), (-365, 0), (0, -365)):
            for kind in ("running", "restarted", "shared"):
                with self.subTest(start=start, later=later, kind=kind):
                    clocks = [lambda days=days: real() + days * day for days in (start, later)]
                    self.check_retry(kind, *clocks)

    def check_retry(self, kind, start, later):
        shared = kind == "shared"
        self.store.close()
        with mock.patch("time.time", start):
            self.store = SqliteInbox(self.path, shared=shared)
        self.put("a")
        calls = []

        def handler(*_):
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("no")

        with mock.patch("time.time", later):
            self.assertTrue(Worker(self.store, handler, retries=(0.05,)).once())
        if kind == "restarted":
            self.store.close()
            self.store = SqliteInbox(self.path)
        worker = Worker(self.store, handler)
        eventually(worker.once, "the retry", 3)
        self.assertEqual(len(calls), 2)
        self.assertEqual(self.store.prune(time.time() + 100_000_000), 1)

    def test_a_clock_that_steps_handles_no_event_twice_at_once(self):
        real = time.time
        for shared in (False, True):
            self.store.close()
            self.store = SqliteInbox(self.path, shared=shared)
            self.put(f"{shared}")
            calls = []

            async def run():
                ended = asyncio.Event()

                async def handler(*_):
                    calls.append(1)
                    await ended.wait()

                worker = AsyncWorker(self.store, handler, concurrency=2)
                first = asyncio.create_task(worker.once())
                while not calls:
                    await asyncio.sleep(0.01)
                with mock.patch("time.time", lambda: real() + 3600):
                    second = asyncio.create_task(worker.once())
                    await asyncio.wait({second}, timeout=0.3)
                ended.set()
                await asyncio.gather(first, second)

            asyncio.run(asyncio.wait_for(run(), 20))
            self.assertEqual(len(calls), 1)

    def test_a_long_delay_of_a_worker_outlives_the_process(self):
        self.put("a")
        self.store.fail("a", "no", self.store.now() + 3 * 86_400)
        self.store.close()
        self.store = SqliteInbox(self.path)
        self.assertGreater(self.store.next_due(), time.time() + 2 * 86_400)

    def test_new_and_failed_events_do_not_keep_each_other_waiting(self):
        store, now = self.store, self.store.now()

        def turns(id, other):
            """How many claims it takes until that event has its turn."""
            for count in range(1, 20):
                claimed = store.claim(now, 60)
                if claimed.id == id:
                    store.complete(id)
                    return count
                other(claimed.id, count)
            self.fail(f"{id} is kept waiting")

        def backlog(id, count):
            store.complete(id)
            self.put(f"later {count}")
            self.put(f"later still {count}")

        self.put("failed")
        store.fail(store.claim(now, 60).id, "no", now)
        for id in "abc":
            self.put(id)
        self.assertLessEqual(turns("failed", backlog), 2)
        while claimed := store.claim(now, 60):
            store.fail(claimed.id, "no", None)
        for id in "def":
            self.put(id)
            store.fail(id, "no", now)
        self.put("new")
        self.assertLessEqual(turns("new", lambda id, _: store.fail(id, "no", now)), 2)
        self.put("ahead")
        self.assertEqual(store.claim(1, 60).id, "ahead", "new ones are due by every clock")

    def test_a_claim_does_not_read_the_states_of_all_resources(self):
        self.put("a")
        plan = plans(self.store, lambda: self.store.claim(time.time(), 60))
        self.assertRegex(plan, "SEARCH .*newest")
        self.assertNotRegex(plan, "SCAN .*newest")

    def test_an_idle_worker_of_a_shared_inbox_reads_little_and_writes_nothing(self):
        self.store.close()
        self.store = SqliteInbox(self.path, shared=True)
        for number in range(20):
            self.put(f"{number}")
            self.store.fail(f"{number}", "no", time.time() + 600)
        passed, statements, monotonic = 0, [], time.monotonic
        self.store._db.set_trace_callback(statements.append)
        with mock.patch("time.monotonic", lambda: monotonic() + passed):
            for passed in (0, 1, 2, 59, 61, 62):
                self.assertIsNone(self.store.claim(time.time(), 60))
            changes = [one for one in statements if "SET due_at" in one]
            checks = [one for one in statements if "SELECT EXISTS" in one]
            self.assertEqual((len(changes), len(checks)), (0, 2))
            passed = 122
            plan = plans(self.store, lambda: self.store.claim(time.time(), 60))
            self.assertNotRegex(plan, r"SCAN (TABLE )?restive_inbox(?! USING)")
            ahead = time.time() + 365 * 86_400
            self.store._db.execute("UPDATE restive_inbox SET due_at = ? WHERE id = '7'", (ahead,))
            passed = 183
            self.assertIsNone(self.store.claim(time.time(), 60))
            self.assertEqual(self.store.claim(time.time(), 60).id, "7", "the clock was ahead")

    def test_others_write_while_many_events_are_removed(self):
        for number in range(25):
            body = changed(f"{number}", f"{number}", {"version": 1})
            self.store.put(f"{number}", "t", body, "")
            self.store.complete(f"{number}")
        other = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self.addCleanup(other.close)
        left = []

        def between(_):
            other.execute("INSERT INTO restive_settings VALUES (?, '')", (f"{len(left)}",))
            tables = ("restive_inbox", "restive_newest")
            left.append([other.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables])

        removed = []
        with mock.patch.object(module, "PRUNE_SLICE", 10), mock.patch("time.sleep", between):
            plan = plans(self.store, lambda: removed.append(self.store.prune(time.time() + 1)))
        self.assertEqual(left, [[15, 25], [5, 25], [0, 15], [0, 5]])
        self.assertEqual(removed, [25])
        self.assertEqual(other.execute("SELECT * FROM restive_newest").fetchall(), [])
        self.assertNotIn("SCAN restive", plan)

    @unittest.skipUnless(hasattr(os, "fork"), "this system has no fork")
    def test_a_forked_process_gets_an_error_and_breaks_nothing(self):
        self.put("a")
        uses = {
            "put": lambda: self.put("b"),
            "claim": lambda: self.store.claim(time.time(), 60),
            "now": lambda: self.store.now(),
            "close": lambda: self.store.close(),
        }
        for name, use in uses.items():
            with self.subTest(name):
                found = in_fork(use)
                expected = "None" if name == "close" else "RuntimeError: .*another process.*fork"
                self.assertRegex(found, expected)
        self.assertEqual(self.put("a"), "known", "the parent still has it")
        command = [sys.executable, "-c", OPEN, self.path, ""]
        second = subprocess.run(command, capture_output=True, text=True)
        self.assertIn("open it with shared=True", second.stderr, "the parent still has the lock")

    def test_a_second_process_must_share_the_inbox(self):
        command = [sys.executable, "-c", OPEN, self.path]
        for held, mode, works in (
            (False, "", False),
            (False, "shared", False),
            (True, "", False),
            (True, "shared", True),
        ):
            with self.subTest(held=held, mode=mode):
                self.store.close()
                self.store = SqliteInbox(self.path, shared=held)
                found = subprocess.run([*command, mode], capture_output=True, text=True)
                self.assertEqual(found.returncode == 0, works, found.stderr)
                if not works:
                    self.assertIn("open it with shared=True", found.stderr)
        self.store.close()
        # A killed process holds nothing.
        child = subprocess.Popen([*command, "", "wait"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "open\n")
        child.kill()
        child.wait()
        child.stdout.close()
        self.store = SqliteInbox(self.path)
        self.assertEqual(os.stat(f"{self.path}.lock").st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
