"""A store that hangs: requests are answered in time, and only so many wait for it."""

import asyncio
import io
import threading
import time
import tracemalloc
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from harness import eventually
from restive_client import receiver as module
from restive_client.receiver import Receiver, asgi_app, wsgi_app
from restive_client.webhook import sign

SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
EVENT = b'{"id":"evt_1"}'
HEADERS = sign(EVENT, SECRET, id="evt_1")


class Hanging:
    """A store on a disk that does not answer until it is released."""

    def __init__(self):
        self.released = threading.Event()
        self.begun = 0

    def put(self, *_):
        self.begun += 1
        self.released.wait(30)
        return "stored"


class Limits(unittest.TestCase):
    def setUp(self):
        self.store = Hanging()
        self.addCleanup(self.store.released.set)
        self.problems = []
        self.receiver = Receiver(SECRET, self.store, on_problem=self.problems.append)

    def wsgi(self):
        """An application, as a function that returns status and headers."""
        app = wsgi_app(self.receiver)
        names = {f"HTTP_{name.upper().replace('-', '_')}": v for name, v in HEADERS.items()}

        def send():
            answers = []
            environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(EVENT)), **names}
            app({**environ, "wsgi.input": io.BytesIO(EVENT)}, lambda *one: answers.append(one))
            return int(answers[0][0][:3]), {name.lower(): v for name, v in answers[0][1]}

        return send

    def asgi(self):
        app = asgi_app(self.receiver)
        headers = [(name.lower().encode(), v.encode()) for name, v in HEADERS.items()]
        scope = {"type": "http", "method": "POST", "scheme": "http", "client": None}

        async def send():
            sent = []

            async def receive():
                return {"type": "http.request", "body": EVENT}

            async def answer(message):
                sent.append(message)

            await app({**scope, "headers": headers}, receive, answer)
            found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
            return sent[0]["status"], found

        return send

    def check(self, answers, seconds):
        """More requests than threads wait, and two more than may wait."""
        self.assertEqual([status for status, _ in answers], [503] * len(answers))
        for _, headers in answers:
            self.assertGreater(int(headers["retry-after"]), 0)
        self.assertLess(seconds, 5)
        self.assertEqual({one.code for one in self.problems}, {"store_failed"})
        messages = [one.message for one in self.problems]
        refused = [one for one in messages if "wait for the store" in one]
        late = [one for one in messages if "within 1.5 s" in one]
        self.assertEqual((len(refused), len(late)), (2, len(answers) - 2), messages)

    def test_asgi_answers_in_time_and_bounds_what_waits(self):
        send = self.asgi()

        async def run():
            began = time.monotonic()
            answers = await asyncio.gather(*(send() for _ in range(10)))
            return answers, time.monotonic() - began

        with self.limits():
            self.check(*asyncio.run(run()))
        self.recovers(lambda: asyncio.run(send()))

    def test_wsgi_answers_in_time_and_bounds_what_waits(self):
        send = self.wsgi()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(send())) for _ in range(10)]
        with self.limits():
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            self.check(answers, time.monotonic() - began)
        self.recovers(send)

    def limits(self):
        limits = {"STORE_SECONDS": 1.5, "MAX_WAITING_REQUESTS": 8}
        return mock.patch.multiple(module, **limits)

    def recovers(self, send):
        """What was given up before it began is not stored, and nothing counts as waiting."""
        self.assertLessEqual(self.store.begun, module.STORE_THREADS)
        self.store.released.set()
        eventually(lambda: send()[0] == 200, "the disk is back", 5)

    def test_a_request_that_ends_early_does_not_count_as_waiting(self):
        send = self.asgi()

        async def run():
            for _ in range(20):
                task = asyncio.create_task(send())
                # Begins, and waits for the store.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})

        with self.limits():
            asyncio.run(run())
        self.assertEqual(self.problems, [], "none was refused")
        self.recovers(lambda: asyncio.run(send()))

    def test_a_request_that_was_answered_keeps_no_body_while_the_store_hangs(self):
        body = b'{"id":"evt_1","text":"' + b"x" * 1_000_000 + b'"}'
        headers = list(sign(body, SECRET, id="evt_1").items())
        threads = module._Threads(self.receiver)
        with mock.patch.object(module, "STORE_SECONDS", 0.05):
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            for _ in range(40):
                own = bytes(bytearray(body))
                self.assertEqual(threads.accept("POST", headers, own).status, 503)
            del own
        kept, _ = tracemalloc.get_traced_memory()
        # Those that are in progress, with what was parsed of them.
        self.assertLess(kept, 20_000_000)

    def test_a_thread_that_cannot_be_started_does_not_count_as_waiting(self):
        self.store.released.set()
        asgi = self.asgi()

        def fail(*_):
            raise RuntimeError("can't start new thread")

        for send in (self.wsgi(), lambda: asyncio.run(asgi())):
            self.problems.clear()
            begun = self.store.begun
            with self.limits(), mock.patch.object(ThreadPoolExecutor, "_adjust_thread_count", fail):
                for _ in range(20):
                    self.assertEqual(send()[0], 503)
            messages = [one.message for one in self.problems]
            self.assertTrue(all("can't start new thread" in one for one in messages), messages)
            self.assertEqual(send()[0], 200)
            # What was answered with 503 is in the queue of the threads, and must do nothing.
            self.assertEqual(self.store.begun, begun + 1)


if __name__ == "__main__":
    unittest.main()
