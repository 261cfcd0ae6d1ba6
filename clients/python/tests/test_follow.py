"""The follower, sync and async: every event once and in order, whatever happens to the connection
and the server."""

import asyncio
import threading
import unittest
import unittest.mock
from concurrent.futures import ThreadPoolExecutor

import restive_client._live as live
from harness import KEY, Fake, Flood, Server, cut, eventually, html, reply, stream
from restive_client import AsyncClient, Client, FollowError


def text_of(message):
    if message.type == "stream.reset":
        return f"reset {message.data['reason']}"
    return message.data["text"]


def collect(follower, last, texts=None):
    texts = [] if texts is None else texts
    for message in follower:
        texts.append(text_of(message))
        if texts[-1] == last:
            break
    return texts


async def collect_async(follower, last, texts=None):
    texts = [] if texts is None else texts
    async with follower:
        async for message in follower:
            texts.append(text_of(message))
            if texts[-1] == last:
                break
    return texts


class RealServer(unittest.TestCase):
    def killed(self, follow):
        """Writes while the server is killed; `follow` collects in a thread."""
        with Server() as server, Client(server.url, KEY, max_retries=20) as client:
            texts, opened, errors = [], [], []

            def on_state(state, _delay, _error):
                if state == "open":
                    opened.append(state)

            def run():
                try:
                    follow(server.url, on_state, texts)
                except Exception as error:
                    errors.append(error)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            eventually(lambda: opened or errors, "the first connection")
            written = []
            for number in range(60):
                if number in (20, 40):
                    server.kill()
                    server.start()
                client.post("/v1/messages", {"from": "ann", "text": f"{number}"})
                written.append(f"{number}")
            client.post("/v1/messages", {"from": "ann", "text": "last"})
            thread.join(30)
            self.assertEqual((errors, texts), ([], [*written, "last"]))
            self.assertGreaterEqual(len(opened), 2)

    def test_every_event_comes_once_while_the_server_is_killed(self):
        def sync(channel):
            def follow(url, on_state, texts):
                with Client(url, KEY) as client:
                    options = {"channel": channel, "types": ["message"], "feed": "messages"}
                    collect(client.follow(**options, on_state=on_state), "last", texts)

            return follow

        def asynchronous(channel):
            async def run(url, on_state, texts):
                async with AsyncClient(url, KEY) as client:
                    options = {"channel": channel, "types": ["message"], "feed": "messages"}
                    await collect_async(client.follow(**options, on_state=on_state), "last", texts)

            return lambda *arguments: asyncio.run(run(*arguments))

        follows = [make(channel) for make in (sync, asynchronous) for channel in ("sse", "poll")]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.killed, follows))

    def test_a_gap_is_reported_then_the_stream_goes_on(self):
        with Server() as server, Client(server.url, KEY) as client:
            for channel in ("sse", "poll"):
                resets = []

                def on_reset(reset):
                    resets.append(reset)
                    client.post("/v1/messages", {"from": "ann", "text": "after"})

                options = {
                    "channel": channel,
                    "types": ["message"],
                    "feed": "messages",
                    "since": "00000000.1",
                }
                follower = client.follow(**options, on_reset=on_reset)
                self.assertEqual(collect(follower, "after"), ["after"])
                self.assertEqual(len(resets), 1)
                self.assertTrue(resets[0].refetch)
                first = next(iter(client.follow(**options)))
                self.assertEqual(first.type, "stream.reset")

    def test_an_expired_token_is_replaced_at_once(self):
        with Server() as server, Client(server.url, KEY) as backend:
            tokens, opened = [], []

            def token():
                body = {"user": "ann", "types": ["message"], "expires_in": 5}
                tokens.append(backend.post("/v1/channel-tokens", body)["token"])
                return tokens[-1]

            def on_state(state, *_):
                if state == "open":
                    opened.append(state)

            with Client(server.url) as page, ThreadPoolExecutor(1) as pool:
                follower = page.follow(types=["message"], token=token, on_state=on_state)
                done = pool.submit(collect, follower, "last")
                eventually(lambda: len(opened) >= 1, "the first connection")
                backend.post("/v1/messages", {"from": "ann", "text": "first"})
                eventually(lambda: len(opened) >= 2, "the second connection")
                backend.post("/v1/messages", {"from": "ann", "text": "last"})
                self.assertEqual(done.result(20), ["first", "last"])
            self.assertGreaterEqual(len(tokens), 2)

    def test_the_position_is_saved_after_a_message_was_processed(self):
        with Server() as server, Client(server.url, KEY) as client:
            saved = [client.list("/v1/messages").first().position]

            class Positions:
                load = staticmethod(lambda: saved[-1])
                save = staticmethod(saved.append)

            for text in "abc":
                client.post("/v1/messages", {"from": "ann", "text": text})
            seen = []
            for message in client.follow(types=["message"], positions=Positions()):
                seen.append((message.data["text"], len(saved)))
                # The process dies while it handles `b`: it must come again.
                if message.data["text"] == "b":
                    break
            self.assertEqual(seen, [("a", 1), ("b", 2)])
            again = collect(client.follow(types=["message"], positions=Positions()), "c")
            self.assertEqual(again, ["b", "c"])


HELLO = "retry: 10\nid: e.1\n\n"


def event(number, text=None):
    return f'event: message\nid: e.{number}\ndata: {{"text":"{text or number}"}}\n\n'


def closing(reason):
    return f'event: stream.closing\ndata: {{"reason":"{reason}"}}\n\n'


LAST = event(9, "last")
TAIL = stream(LAST, end=False)
LIMITED = reply(429, {"error": {"code": "rate_limited"}}, {"Retry-After": "2"})
RESET = 'event: stream.reset\nid: e.7\ndata: {"reason":"expired"}\n\n'

# name, what the server sends on each connection, texts, range of the first delay, next position
CASES = [
    (
        "cut within an event",
        [
            cut(HELLO + event(2) + event(3)[:30], "text/event-stream"),
            stream(event(3) + LAST, end=False),
        ],
        ["2", "3", "last"],
        (1, 2),
        "e.2",
    ),
    (
        "sent twice",
        [
            stream(HELLO + event(2) + event(2) + event(3)),
            stream(event(2) + event(3) + event(4) + LAST, end=False),
        ],
        ["2", "3", "4", "last"],
        (1, 1),
        "e.3",
    ),
    ("an HTML page", [html(200), TAIL], ["last"], (1, 2), "e.1"),
    ("an HTML page with 404", [html(404), TAIL], ["last"], (1, 2), "e.1"),
    ("429 with Retry-After", [LIMITED, TAIL], ["last"], (2, 2), "e.1"),
    ("503", [reply(503, {"error": {"code": "overloaded"}}), TAIL], ["last"], (1, 2), "e.1"),
    ("a refused connection", [stream("retry: 2500\n\n"), TAIL], ["last"], (2.5, 2.5), "e.1"),
    ("a drain", [stream(HELLO + "retry: 1500\n\n"), TAIL], ["last"], (1.5, 1.5), "e.1"),
    ("slow_resume", [stream(HELLO + closing("slow_resume")), TAIL], ["last"], (1, 2), "e.1"),
    ("token_expired", [stream(HELLO + closing("token_expired")), TAIL], ["last"], (0, 0), "e.1"),
    ("not JSON", [stream(HELLO + "id: e.2\ndata: {\n\n"), TAIL], ["last"], (1, 2), "e.1"),
    (
        "a reset after a cut greeting",
        [stream("id: e.7\n\n"), stream(RESET + event(8) + LAST, end=False)],
        ["reset expired", "8", "last"],
        (1, 2),
        "e.1",
    ),
    (
        "line ends of all kinds",
        [stream('\r\n: hi\r\nid: e.2\r\ndata: {"text":\r\ndata: "2"}\r\r' + LAST, end=False)],
        ["2", "last"],
        None,
        None,
    ),
]

FATAL = [
    ("403", reply(403, {"error": {"code": "permission_denied", "message": "no"}})),
    ("400", reply(400, {"error": {"code": "invalid_parameter", "message": "no"}})),
    ("401", reply(401, {"error": {"code": "invalid_api_key", "message": "no"}})),
    ("key_revoked", stream(HELLO + closing("key_revoked"))),
]


class Misbehaving(unittest.TestCase):
    def check(self, case, texts, fake, delays):
        name, steps, expected, waited, position = case
        self.assertEqual(texts, expected)
        self.assertEqual(len(fake.requests), len(steps))
        self.assertIn("since=e.1", fake.requests[0]["url"])
        if waited:
            self.assertTrue(waited[0] <= delays[0] <= waited[1], delays)
            # A position is what the consumer has received, so a gap is asked for again.
            self.assertIn(f"since={position}", fake.requests[1]["url"])

    def test_the_sync_follower_loses_and_repeats_nothing(self):
        def run(case):
            delays = []

            def on_state(state, delay, _):
                if state == "waiting":
                    delays.append(delay)

            with Fake(*case[1]) as fake, Client(fake.url, "k") as client:
                follower = client.follow(since="e.1", on_state=on_state, token=lambda: "t")
                return collect(follower, "last"), fake, delays

        with ThreadPoolExecutor(len(CASES)) as pool:
            for case, outcome in zip(CASES, pool.map(run, CASES)):
                with self.subTest(case[0]):
                    self.check(case, *outcome)

    def test_the_async_follower_loses_and_repeats_nothing(self):
        async def run(case):
            delays = []

            def on_state(state, delay, _):
                if state == "waiting":
                    delays.append(delay)

            async def token():
                return "t"

            with Fake(*case[1]) as fake:
                async with AsyncClient(fake.url, "k") as client:
                    follower = client.follow(since="e.1", on_state=on_state, token=token)
                    return await collect_async(follower, "last"), fake, delays

        async def run_all():
            return await asyncio.gather(*map(run, CASES))

        for case, outcome in zip(CASES, asyncio.run(run_all())):
            with self.subTest(case[0]):
                self.check(case, *outcome)

    def test_a_refusal_of_the_service_ends_the_follower(self):
        async def run(url):
            async with AsyncClient(url, "k") as client:
                await collect_async(client.follow(), "last")

        for name, step in FATAL:
            with self.subTest(name), Fake(step) as fake:
                with Client(fake.url, "k") as client, self.assertRaises(FollowError):
                    collect(client.follow(), "last")
                with self.assertRaises(FollowError):
                    asyncio.run(run(fake.url))
                self.assertEqual(len(fake.requests), 2)

    def test_a_refused_key_is_renewed(self):
        refused = reply(401, {"error": {"code": "invalid_api_key", "message": "no"}})
        given = iter(["key1", "key2"])
        with Fake(refused, TAIL) as fake, Client(fake.url, lambda _: next(given)) as client:
            self.assertEqual(collect(client.follow(), "last"), ["last"])
            sent = [request["headers"]["authorization"] for request in fake.requests]
        self.assertEqual(sent, ["Bearer key1", "Bearer key2"])

    def test_an_event_that_is_too_long_ends_the_connection(self):
        errors = []
        huge = stream("data: " + "x" * (17 * 1024 * 1024), end=False)
        with Fake(huge, TAIL) as fake, Client(fake.url, "k") as client:
            follower = client.follow(on_state=lambda _, __, error: errors.append(str(error)))
            self.assertEqual(collect(follower, "last"), ["last"])
        self.assertIn("an event is too long", errors)

    def test_a_silent_stream_is_opened_again(self):
        with unittest.mock.patch("restive_client.follow.SILENCE_SECONDS", 0.2):
            with Fake(stream(HELLO, end=False), TAIL) as fake, Client(fake.url, "k") as client:
                self.assertEqual(collect(client.follow(), "last"), ["last"])
                self.assertEqual(len(fake.requests), 2)

    def test_close_ends_the_loop_also_while_it_waits(self):
        for step in (html(500), stream(HELLO, end=False)):
            with Fake(step) as fake, Client(fake.url, "k") as client:
                follower = client.follow()
                timer = threading.Timer(0.3, follower.close)
                timer.start()
                self.assertEqual(collect(follower, "last"), [])

            async def run():
                with Fake(step) as fake:
                    async with AsyncClient(fake.url, "k") as client:
                        follower = client.follow()
                        asyncio.get_running_loop().call_later(0.3, follower.close)
                        return await asyncio.wait_for(collect_async(follower, "last"), 10)

            self.assertEqual(asyncio.run(run()), [])

    def test_delays_double_up_to_30_seconds(self):
        for failures, base in enumerate((1, 2, 4, 8, 15, 15, 15)):
            self.assertEqual(live.reconnect_delay(failures, 0.0), base)
            self.assertEqual(live.reconnect_delay(failures, 1.0), 2 * base)
        self.assertLessEqual(live.reconnect_delay(10**6), 30)

    def test_delays_begin_again_after_a_success_only(self):
        opened = live.Item(opened=True, position="e.1")
        message = live.Item(message=live.Message("typing", None))
        # What comes in each connection, its seconds, and the shortest delay after it.
        progress = live.Progress(live.Options())
        for items, lived, base in (
            ([], 0.1, 1),
            ([opened], 0.1, 2),
            ([opened], 0.1, 4),
            ([opened, message], 0.1, 1),
            ([opened], 0.1, 2),
            ([], 10.0, 4),
            ([opened], 10.0, 1),
        ):
            progress.opened = False
            for item in items:
                progress.take(item)
            delay = progress.delay(live.End(), lived)
            self.assertTrue(base <= delay <= 2 * base, (items, delay))

    def test_empty_polls_at_once_are_sent_once_a_second(self):
        async def run(fake):
            async with AsyncClient(fake.url, "k") as client:
                follower = client.follow(channel="poll", feed="messages")
                loop = asyncio.get_running_loop()
                done = loop.run_in_executor(None, four, fake)
                done.add_done_callback(lambda _: follower.close())
                self.assertEqual([message async for message in follower], [])
                await done

        def four(fake):
            eventually(lambda: len(fake.requests) >= 4, "four polls")
            # The second one knows the position.
            self.assertGreaterEqual(fake.requests[3]["at"] - fake.requests[1]["at"], 1.9)

        for records in ([], [{"id": 1, "object": "message"}]):
            answer = reply(200, records, {"X-Stream-Position": "e.1"})
            with Fake(answer) as fake, Client(fake.url, "k") as client:
                follower = client.follow(channel="poll", feed="messages")
                with ThreadPoolExecutor(1) as pool:
                    done = pool.submit(list, follower)
                    four(fake)
                    follower.close()
                    self.assertEqual(done.result(10), [])
            with Fake(answer) as fake:
                asyncio.run(asyncio.wait_for(run(fake), 20))

    def test_a_response_without_an_end_is_not_read(self):
        def check(flood, run):
            errors = []

            def on_state(follower):
                def report(state, _delay, error):
                    if state == "waiting":
                        errors.append(str(error))
                        follower.close()

                return report

            with Fake(flood) as fake:
                run(fake.url, on_state)
            self.assertRegex(errors[0], "503" if flood._status == 503 else "larger than 16777216")
            self.assertLess(flood.sent, 64 * 2**20)

        for channel, status in (("sse", 503), ("poll", 503), ("poll", 200)):

            def sync(url, on_state):
                with Client(url, "k") as client:
                    follower = client.follow(channel=channel, feed="messages")
                    follower._options.on_state = on_state(follower)
                    self.assertEqual(list(follower), [])

            async def asynchronous(url, on_state):
                async with AsyncClient(url, "k") as client:
                    follower = client.follow(channel=channel, feed="messages")
                    follower._options.on_state = on_state(follower)
                    self.assertEqual([message async for message in follower], [])

            with self.subTest(channel=channel, status=status):
                check(Flood(status), sync)
                check(Flood(status), lambda *both: asyncio.run(asynchronous(*both)))

    def test_a_message_of_another_form_does_not_end_the_loop(self):
        nested = "[" * 100_000 + "]" * 100_000
        bad = (
            "id: proxy\nevent: message\ndata: {}\n\n",
            "event: typing\ndata: 5\n\n",
            f"id: e.2\nevent: x\ndata: {nested}\n\n",
            "event: stream.closing\ndata: 5\n\n",
        )
        cases = [(stream("id: e.1\n\n" + text), TAIL, "sse") for text in bad]
        poll = {"X-Stream-Position": "e.9"}
        good = reply(200, [{"id": 9, "object": "message", "text": "last"}], poll)
        for records in ([5], [{}], [{"id": 2}]):
            cases.append((reply(200, records, poll), good, "poll"))

        async def run(url, channel):
            async with AsyncClient(url, "k") as client:
                follower = client.follow(channel=channel, feed="messages", since="e.1")
                return await collect_async(follower, "last")

        def check(case):
            wrong, right, channel = case
            with Fake(wrong, right) as fake, Client(fake.url, "k") as client:
                follower = client.follow(channel=channel, feed="messages", since="e.1")
                found = collect(follower, "last")
            with Fake(wrong, right) as fake:
                return found, asyncio.run(asyncio.wait_for(run(fake.url, channel), 20))

        with ThreadPoolExecutor(len(cases)) as pool:
            for case, found in zip(cases, pool.map(check, cases)):
                self.assertEqual(found, (["last"], ["last"]))

    def test_a_long_retry_is_obeyed_up_to_five_minutes(self):
        reader = live.StreamReader()
        reader.push(f"retry: 1{'0' * 5000}\n\n")
        self.assertEqual(live.Progress(live.Options()).delay(live.End(delay=reader.retry), 9), 300)

    def test_what_a_server_asks_for_is_obeyed_from_a_second_to_five_minutes(self):
        wishes = ((31_536_000.0, 300.0), (300.0, 300.0), (120.0, 120.0), (0.0, 1.0), (0.01, 1.0))
        for opened in (False, True):
            for asked, expected in wishes if opened else wishes[:3]:
                progress = live.Progress(live.Options())
                progress.opened = opened
                self.assertEqual(progress.delay(live.End(delay=asked), 60.0), expected)

    def test_wrong_options_are_refused(self):
        with Client("http://127.0.0.1:1", "k") as client:
            for options in ({"channel": "websocket"}, {"channel": "poll"}, {"typo": 1}):
                with self.assertRaises((ValueError, TypeError)):
                    client.follow(**options)


if __name__ == "__main__":
    unittest.main()
