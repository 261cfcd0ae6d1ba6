"""Functions of the caller that fail, or that are coroutines where nothing would await them."""

import asyncio
import functools
import json
import unittest

from harness import Fake, stream
from restive_client import AsyncClient, Client
from restive_client.receiver import (
    AsyncWorker,
    Receiver,
    SqliteInbox,
    Worker,
    async_reconcile,
    reconcile,
)

SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
ONE = 'id: e.1\n\nevent: message\nid: e.2\ndata: {"text":"last"}\n\n'


async def coroutine(*_):
    raise AssertionError("this is not awaited")


class Callable:
    async def __call__(self, *_):
        raise AssertionError("this is not awaited")


class Provider:
    def list(self, *_):
        return iter([None, {"id": "a", "type": "book.created"}])


class Callbacks(unittest.TestCase):
    def setUp(self):
        self.store = SqliteInbox(":memory:")
        self.addCleanup(self.store.close)

    def test_a_coroutine_function_is_refused_where_nothing_awaits_it(self):
        client = Client("http://127.0.0.1:1")
        self.addCleanup(client.close)

        def run_async(on_skipped):
            return asyncio.run(async_reconcile(Provider(), self.store, on_skipped=on_skipped))

        for call, name in (
            (lambda one: Receiver(SECRET, self.store, on_problem=one), "on_problem"),
            (lambda one: Receiver(SECRET, self.store, event_id=one), "event_id"),
            (lambda one: Worker(self.store, one), "handler"),
            (lambda one: Worker(self.store, print, on_error=one), "on_error"),
            (lambda one: AsyncWorker(self.store, one, on_error=one), "on_error"),
            (lambda one: reconcile(Provider(), self.store, on_skipped=one), "on_skipped"),
            (run_async, "on_skipped"),
            (lambda one: client.follow(on_state=one), "on_state"),
            (lambda one: client.follow(on_reset=one), "on_reset"),
        ):
            for function in (coroutine, functools.partial(coroutine), Callable()):
                with self.subTest(name, function=function), self.assertRaises(TypeError) as raised:
                    call(function)
                self.assertIn(name, str(raised.exception))

    def test_a_handler_whose_coroutine_is_not_awaited_has_failed(self):
        self.store.put("a", "t", json.dumps({"id": "a"}), "a")
        worker = Worker(self.store, lambda *_: coroutine(), retries=(), on_error=lambda *_: None)
        self.assertTrue(worker.once())
        self.assertIn("AsyncWorker", self.store.dead()[0].error)

    def test_on_skipped_that_fails_stops_no_reconciliation(self):
        def fail(_):
            raise ValueError("a bug")

        self.assertEqual(reconcile(Provider(), self.store, on_skipped=fail), 1)

    def test_an_async_follower_awaits_on_state(self):
        states = []

        async def on_state(state, *_):
            await asyncio.sleep(0)
            states.append(state)

        async def run(url):
            async with AsyncClient(url) as client, client.follow(on_state=on_state) as follower:
                async for message in follower:
                    self.assertEqual(message.data, {"text": "last"})
                    break

        with Fake(stream(ONE, end=False)) as server:
            asyncio.run(asyncio.wait_for(run(server.url), 20))
        self.assertEqual(states, ["connecting", "open"])


if __name__ == "__main__":
    unittest.main()
