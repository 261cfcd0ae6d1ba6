"""What strangers can cause: requests without a valid signature, and servers that are none."""

import asyncio
import gzip
import io
import json
import time
import tracemalloc
import unittest
from unittest import mock

from harness import Fake, reply, stream
from restive_client import AsyncClient, Client, InvalidResponse, NotFound, _diagnosis, webhook
from restive_client.receiver import Receiver, SqliteInbox, wsgi_app
from restive_client.webhook import SignatureError, sign, verify

SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
OTHER = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"


def signed(body, secrets=SECRET):
    return sign(body, secrets, id="evt_1")


def full(begin, item, end):
    """Fills a JSON text up to the largest one that is diagnosed."""
    count = (256 * 1024 - len(begin) - len(end)) // len(item) - 1
    return (begin + item * count + item.rstrip(",") + end).encode()


def deep(depth):
    return full("[" * depth, "1,", "]" * depth)


def refusal(headers, body, secrets=SECRET):
    try:
        verify(headers, body, secrets)
    except SignatureError as error:
        return error
    return None


class Signatures(unittest.TestCase):
    def test_a_signature_that_does_not_match_costs_little_whatever_the_body(self):
        hashed = 0
        own = webhook.tag_of

        def tag_of(key, *parts):
            nonlocal hashed
            hashed += sum(len(part) for part in parts)
            return own(key, *parts)

        for name, body in (
            ("nested 900 times", deep(900)),
            ("nested 16 times", deep(16)),
            ("nested as deeply as it can be", b"[" * 131_072 + b"]" * 131_072),
            ("nested objects", full('{"a":' * 900 + "[", "[],", "]" + "}" * 900)),
            ("short numbers that are long when they are written", full("[", "1e15,", "]")),
            ("letters that have escapes", ('["' + "é" * 131_000 + '"]').encode()),
        ):
            with self.subTest(name):
                headers = signed(body[:10], OTHER)
                hashed = 0
                with (
                    mock.patch.object(_diagnosis, "tag_of", tag_of),
                    mock.patch.object(webhook, "tag_of", tag_of),
                ):
                    self.assertEqual(refusal(headers, body).reason, "no_match")
                self.assertLess(hashed, 64 * len(body))

    def test_an_ordinary_body_that_was_written_again_is_explained(self):
        tiers = [{"up_to": 10, "amounts": [1, 2, 3, [4, [5]]]}]
        price = {"recurring": {"tiers": tiers, "meta": {}}}
        item = {"id": "si_1", "livemode": False, "price": price, "name": "Gödel – 音"}
        order = {"id": "ord_1", "object": "order", "items": {"data": [item] * 40}}
        event = {"id": "evt_1", "type": "order.created", "data": {"object": order}}
        nested = json.loads('{"a":[' * 10 + "1" + "]}" * 10)
        layouts = ({"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 4})
        for value in (event, nested):
            texts = {
                json.dumps(value, ensure_ascii=ascii, **layout)
                for layout in layouts
                for ascii in (True, False)
            }
            for original in texts:
                headers = signed(original)
                for received in texts - {original}:
                    found = refusal(headers, received, [OTHER, SECRET])
                    self.assertEqual(found.diagnosis, "body_reserialised", received[:30])

    def test_a_receiver_explains_one_signature_a_second_and_refuses_the_others(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        problems = []

        def receiver():
            return Receiver(SECRET, store, on_problem=lambda one: problems.append(one.error))

        body = b'{"id":"evt_1"}'
        headers = signed(body)
        first = receiver()
        for _ in range(3):
            self.assertEqual(first.accept("POST", headers, body + b"\n").status, 401)
        clock = time.monotonic
        with mock.patch("time.monotonic", lambda: clock() + 1):
            first.accept("POST", headers, body + b"\n")
        # A good one does not use it up.
        other = receiver()
        self.assertEqual(other.accept("POST", headers, body).status, 200)
        other.accept("POST", headers, body + b"\n")
        explained = "body_reserialised"
        found = [(error.reason, error.diagnosis) for error in problems]
        expected = [explained, None, None, explained, explained]
        self.assertEqual(found, [("no_match", diagnosis) for diagnosis in expected])


class Servers(unittest.TestCase):
    def test_an_event_of_many_lines_is_read_in_time(self):
        count = 600_000
        text = "data:[\n" + "data:1,\n" * count + "data:1]\n\n"
        began = time.monotonic()
        with Fake(stream(text)) as server, Client(server.url) as client:
            for message in client.follow():
                self.assertEqual(len(message.data), count + 1)
                break
        self.assertLess(time.monotonic() - began, 15)

    def test_a_response_that_is_compressed_twice_is_not_read(self):
        once = gzip.compress(bytes(200 * 2**20), 6)
        twice = gzip.compress(once)
        answer = {"Content-Encoding": "gzip, gzip"}
        stream = {**answer, "Content-Type": "text/event-stream"}
        errors = []

        def on_state(state, delay, error):
            errors.append(error)
            if error:
                follower.close()

        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for status in (200, 404):
            with Fake(reply(status, twice, answer)) as server, Client(server.url) as client:
                with self.assertRaises(InvalidResponse if status == 200 else NotFound):
                    client.get("/v1/books")
        for options in ({}, {"channel": "poll", "feed": "messages"}):
            with Fake(reply(200, twice, stream)) as server, Client(server.url) as client:
                follower = client.follow(on_state=on_state, **options)
                self.assertEqual(list(follower), [])
                self.assertIsInstance(errors[-1], InvalidResponse)

            async def run(url, options=options):
                async with AsyncClient(url) as client:
                    with self.assertRaises(InvalidResponse):
                        await client.get("/v1/books")

            with Fake(reply(200, twice, answer)) as server:
                asyncio.run(run(server.url))
        _, peak = tracemalloc.get_traced_memory()
        self.assertLess(peak, 50_000_000)

    def test_a_response_that_is_compressed_is_read(self):
        body = gzip.compress(b'{"id":"a"}')
        with Fake(reply(200, body, {"Content-Encoding": "gzip"})) as server:
            with Client(server.url) as client:
                self.assertEqual(client.get("/v1/books/a"), {"id": "a"})
            self.assertEqual(server.requests[0]["headers"]["accept-encoding"], "gzip, deflate")

    def test_a_length_of_many_digits_is_refused(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        app = wsgi_app(Receiver(SECRET, store))
        for digits in (20, 5_000):
            statuses = []
            length = {"CONTENT_LENGTH": "9" * digits, "wsgi.input": io.BytesIO()}
            app({"REQUEST_METHOD": "POST", **length}, lambda status, _: statuses.append(status))
            self.assertEqual(statuses, ["413 Content Too Large"])


if __name__ == "__main__":
    unittest.main()
