"""The receiver: what it answers to each kind of request, what it stores, and what workers do."""

import asyncio
import io
import json
import os
import socket
import sqlite3
import tempfile
import threading
import time
import unittest
from unittest import mock
from wsgiref.validate import validator

import httpx
import standardwebhooks
import stripe
import svix
import uvicorn
from harness import eventually
from restive_client.receiver import (
    AsyncWorker,
    Receiver,
    SqliteInbox,
    Worker,
    apply_once,
    asgi_app,
    reconcile,
    wsgi_app,
)
from restive_client.webhook import SignatureError, sign, verify

SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
OTHER = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"
LIMIT = 4096


def event(id, **more):
    return json.dumps({"id": id, "object": "event", "type": "book.created", **more}).encode()


def signed(body, secrets=SECRET, timestamp=None, id="evt_1"):
    return sign(body, secrets, id=id, timestamp=timestamp)


def timestamped(body):
    """Without the signed id of Standard Webhooks."""
    return {"Restive-Signature": signed(body)["Restive-Signature"]}


def now():
    return int(time.time())


EVENT = event("evt_1")
LONG = event("x" * 256)
# name, method, headers, body, expected status, expected code
BAD = [
    ("unsigned", "POST", {}, EVENT, 401, "signature_missing"),
    ("wrong secret", "POST", signed(EVENT, OTHER), EVENT, 401, "signature_no_match"),
    ("stale", "POST", signed(EVENT, timestamp=now() - 4000), EVENT, 401, "signature_too_old"),
    ("future", "POST", signed(EVENT, timestamp=now() + 4000), EVENT, 401, "signature_too_new"),
    ("truncated body", "POST", signed(EVENT), EVENT[:-3], 401, "signature_no_match"),
    ("empty body, unsigned", "POST", {}, b"", 401, "signature_missing"),
    ("empty body, signed", "POST", signed(b""), b"", 400, "invalid_body"),
    ("10 MB", "POST", {}, b"a" * 10_000_000, 413, "body_too_large"),
    ("not JSON", "POST", signed(b"hello"), b"hello", 400, "invalid_body"),
    ("NaN", "POST", signed(b'{"id":"e","a":NaN}'), b'{"id":"e","a":NaN}', 400, "invalid_body"),
    ("an array", "POST", signed(b"[1]"), b"[1]", 400, "invalid_body"),
    ("a number", "POST", signed(b"7"), b"7", 400, "invalid_body"),
    ("not UTF-8", "POST", signed(b"{\xff}"), b"{\xff}", 400, "invalid_body"),
    ("id is a number", "POST", timestamped(b'{"id":7}'), b'{"id":7}', 400, "invalid_id"),
    ("id is too long", "POST", timestamped(LONG), LONG, 400, "invalid_id"),
    ("a GET", "GET", {}, b"", 405, "method_not_allowed"),
]


def kill(store):
    """Leaves the files as the end of the process would."""
    store._db.close()
    store._guard.close()


class Uvicorn:
    """A real ASGI server."""

    def __init__(self, app):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="critical")
        self._server = uvicorn.Server(config)
        run = self._server.run
        self._thread = threading.Thread(target=run, args=([self._socket],), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started, "the ASGI server")
        self.url = "http://127.0.0.1:%d/hook" % self._socket.getsockname()[1]

    def close(self):
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()


class Handlers(unittest.TestCase):
    def senders(self, receiver):
        """Each handler as a function from a request to its status and body."""
        uvicorn_server = Uvicorn(asgi_app(receiver))
        self.addCleanup(uvicorn_server.close)
        wsgi = httpx.Client(transport=httpx.WSGITransport(app=validator(wsgi_app(receiver))))
        plain = httpx.Client()
        for client in (wsgi, plain):
            self.addCleanup(client.close)

        def sender(client, url):
            def send(method, headers, body):
                response = client.request(method, url, headers=headers, content=body)
                return response.status_code, response.json()

            return send

        return {
            "wsgi": sender(wsgi, "http://receiver/hook"),
            "asgi": sender(plain, uvicorn_server.url),
        }

    def test_bad_requests_are_refused_with_a_reason_and_not_stored(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        problems = []
        receiver = Receiver(SECRET, store, max_body_bytes=LIMIT, on_problem=problems.append)
        for kind, send in self.senders(receiver).items():
            for name, method, headers, body, status, code in BAD:
                with self.subTest(f"{kind}: {name}"):
                    if kind == "wsgi" and method == "GET":
                        headers = {"Content-Length": "0"}
                    found, answer = send(method, headers, body)
                    self.assertEqual((found, answer["error"]["code"]), (status, code), answer)
                    self.assertEqual(problems[-1].code, code)
                    self.assertNotIn(SECRET, repr((answer, problems[-1])))
        self.assertEqual(store.counts(), {"pending": 0, "done": 0, "dead": 0})

    def test_an_event_is_stored_once_also_if_it_comes_again_with_another_body(self):
        for kind in ("wsgi", "asgi"):
            store = SqliteInbox(":memory:")
            self.addCleanup(store.close)
            problems = []
            receiver = Receiver([OTHER, SECRET], store, on_problem=problems.append)
            send = self.senders(receiver)[kind]

            def post(body):
                status, answer = send("POST", signed(body), body)
                return status, answer.get("duplicate", False)

            self.assertEqual(post(event("evt_1", pending_webhooks=2)), (200, False))
            self.assertEqual(post(event("evt_1", pending_webhooks=1)), (200, True))
            self.assertEqual(problems, [])
            self.assertEqual(post(event("evt_1", data={"object": {"price": 0}})), (200, True))
            self.assertEqual([problem.code for problem in problems], ["different_body"])
            handled = []
            worker = Worker(store, lambda event, _: handled.append(event))
            while worker.once():
                pass
            self.assertEqual(handled, [json.loads(event("evt_1", pending_webhooks=2))])
            self.assertEqual(post(event("evt_1", pending_webhooks=0)), (200, True))
            self.assertFalse(worker.once())

    def test_https_and_addresses_are_required_if_that_is_set(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        receiver = Receiver(SECRET, store, https_only=True, allow=["127.0.0.0/8", "::1"])
        app, asgi = wsgi_app(receiver), asgi_app(receiver)

        def over_wsgi(scheme, address):
            statuses = []
            environ = {
                "REQUEST_METHOD": "POST",
                "CONTENT_LENGTH": str(len(EVENT)),
                "wsgi.input": io.BytesIO(EVENT),
                "wsgi.url_scheme": scheme,
                **({} if address is None else {"REMOTE_ADDR": address}),
                **{f"HTTP_{name.upper().replace('-', '_')}": v for name, v in HEADERS.items()},
            }
            body = app(environ, lambda status, _: statuses.append(int(status[:3])))
            return statuses[0], json.loads(b"".join(body))

        def over_asgi(scheme, address):
            sent = []
            headers = [(name.lower().encode(), v.encode()) for name, v in HEADERS.items()]
            client = None if address is None else (address, 1)
            scope = {"type": "http", "method": "POST", "scheme": scheme, "client": client}

            async def receive():
                return {"type": "http.request", "body": EVENT}

            async def send(message):
                sent.append(message)

            asyncio.run(asgi({**scope, "headers": headers}, receive, send))
            return sent[0]["status"], json.loads(sent[1]["body"])

        HEADERS = signed(EVENT)
        for send in (over_wsgi, over_asgi):
            for scheme, address, status, code in (
                ("http", "127.0.0.1", 403, "https_required"),
                ("https", "192.0.2.1", 403, "address_not_allowed"),
                ("https", "no address", 403, "address_not_allowed"),
                ("https", None, 403, "address_not_allowed"),
                ("https", "::ffff:127.0.0.1", 200, None),
                ("https", "::1", 200, None),
            ):
                with self.subTest(send=send.__name__, scheme=scheme, address=address):
                    found, answer = send(scheme, address)
                    self.assertEqual((found, answer.get("error", {}).get("code")), (status, code))
        for wrong in ("nonsense", "192.0.2.0/33"):
            with self.assertRaises(ValueError):
                Receiver(SECRET, store, allow=[wrong])

    def test_later_events_about_one_record_are_not_taken_for_the_first(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        receiver = Receiver(SECRET, store)
        # A third party: the body is the record, and the signed id is that of the message.
        body = json.dumps({"id": "user_1", "type": "user.updated"}).encode()
        for id in ("msg_1", "msg_2", "msg_1"):
            self.assertEqual(receiver.accept("POST", signed(body, id=id), body).status, 200)
        handled = []
        worker = Worker(store, lambda event, context: handled.append((event["id"], context.id)))
        while worker.once():
            pass
        self.assertEqual(handled, [("user_1", "msg_1"), ("user_1", "msg_2")])

    def test_a_report_or_a_function_of_the_caller_that_fails_does_not_end_the_request(self):
        def fail(*_):
            raise ValueError("a bug")

        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        receiver = Receiver(SECRET, store, on_problem=fail)
        self.assertEqual(receiver.accept("GET", {}, b"").status, 405)
        receiver = Receiver(SECRET, store, event_id=fail)
        self.assertEqual(receiver.accept("POST", signed(EVENT), EVENT).status, 503)
        body = b'{"id":"evt_1","type":"\\ud800"}'
        receiver = Receiver(SECRET, store)
        self.assertEqual(receiver.accept("POST", signed(body), body).status, 200)

    def test_bodies_that_readers_of_json_take_differently(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        handled = []
        worker = Worker(store, lambda event, context: handled.append(context.id), retries=())
        long = b'{"id":"evt_1","a":' + b"7" * 5_000 + b',"a":1,"b":{"id":1,"id":2},"type":'
        twice = b'{"id":"evt_2","b":[{"id":1}],"i\\u0064":"evt_3"}'
        number = b'{"id":"evt_4","type":{"toString":1}}'
        own = Receiver(SECRET, store, event_id=lambda event, _: event["id"])
        signed_id = Receiver(SECRET, store)
        for receiver, headers, body, status in (
            (signed_id, timestamped(long + b"5}"), long + b"5}", 200),
            (signed_id, timestamped(twice), twice, 400),
            (own, signed(twice), twice, 400),
            (signed_id, signed(twice, id="msg_1"), twice, 200),
            (signed_id, timestamped(number), number, 200),
        ):
            with self.subTest(body[-30:]):
                self.assertEqual(receiver.accept("POST", headers, body).status, status)
        types = store._db.execute("SELECT type FROM restive_inbox").fetchall()
        self.assertEqual(types, [("",)] * 3, "only a text is a type")
        while worker.once():
            pass
        self.assertEqual(handled, ["evt_1", "msg_1", "evt_4"])

    def test_handlers_that_block_the_threads_of_asyncio_delay_no_answer(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        app = asgi_app(Receiver(SECRET, store))
        headers = [(name.lower().encode(), v.encode()) for name, v in signed(EVENT).items()]
        scope = {"type": "http", "method": "POST", "scheme": "http", "client": None}
        sent = []

        async def receive():
            return {"type": "http.request", "body": EVENT}

        async def send(message):
            sent.append(message)

        async def run():
            released = threading.Event()
            loop = asyncio.get_running_loop()
            blocked = [loop.run_in_executor(None, released.wait, 20) for _ in range(64)]
            try:
                await asyncio.wait_for(app({**scope, "headers": headers}, receive, send), 10)
            finally:
                released.set()
            await asyncio.gather(*blocked)

        asyncio.run(run())
        self.assertEqual(sent[0]["status"], 200)

    def test_a_body_that_is_nested_deeply_is_refused(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        receiver = Receiver(SECRET, store)
        for depth, status in ((100, 200), (500_000, 400)):
            body = b'{"id":"evt_1","a":' + b"[" * depth + b"]" * depth + b"}"
            self.assertEqual(receiver.accept("POST", signed(body), body).status, status)

    def test_a_header_that_comes_twice_or_a_bad_one_beside_a_good_one_verifies_nothing(self):
        good, bad = signed(EVENT), signed(EVENT, OTHER)
        ours, standard = "Restive-Signature", "webhook-signature"
        named = [(name, good[name]) for name in ("webhook-id", "webhook-timestamp")]
        joined = f"{good[ours]}, {good[ours]}"
        both = ("standard", "timestamped")
        # headers, families, expected reason
        for headers, families, reason in (
            ([(ours, good[ours]), (ours, good[ours])], both, "malformed"),
            ([(ours, good[ours]), (ours.lower(), bad[ours])], both, "malformed"),
            ({ours: joined}, both, "malformed"),
            ({ours: joined.replace(", t=", ",t=")}, both, "malformed"),
            ([*good.items(), ("webhook-id", "evt_1")], both, "malformed"),
            ([*good.items(), (ours, good[ours])], both, "malformed"),
            ([*named, (standard, bad[standard]), (ours, good[ours])], both, "no_match"),
            ({standard: good[standard], ours: good[ours]}, both, "missing"),
            ({**good, "svix-signature": "v1,", standard: bad[standard]}, both, "no_match"),
            ({**good, standard: bad[standard]}, both[::-1], None),
            ([*good.items(), ("x-other", "1"), ("x-other", "1")], both, None),
            ({"svix-signature": "v1,", ours: good[ours]}, ("timestamped",), None),
            ([*named, (ours, good[ours])], both, None),
        ):
            with self.subTest(headers=headers):
                found = None
                try:
                    verify(headers, EVENT, SECRET, families=families)
                except SignatureError as error:
                    found = error.reason
                self.assertEqual(found, reason)

    def test_a_store_that_fails_makes_the_provider_send_again(self):
        class Broken:
            def put(self, *_):
                raise OSError("/disk is full")

        problems = []
        receiver = Receiver(SECRET, Broken(), on_problem=problems.append)
        answer = receiver.accept("POST", signed(EVENT), EVENT)
        self.assertEqual(answer.status, 503)
        self.assertNotIn(b"/disk", answer.body)
        self.assertIn("disk is full", problems[0].message)

    def test_a_store_that_is_busy_answers_within_five_seconds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "inbox.db")
            store = SqliteInbox(path)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            answer = Receiver(SECRET, store).accept("POST", signed(EVENT), EVENT)
            self.assertEqual(answer.status, 503)
            self.assertLess(time.monotonic() - began, 5)
            other.close()
            self.assertEqual(
                Receiver(SECRET, store).accept("POST", signed(EVENT), EVENT).status, 200
            )
            store.close()

    def test_a_body_that_ends_too_early_stores_nothing(self):
        store = SqliteInbox(":memory:")
        self.addCleanup(store.close)
        problems = []
        receiver = Receiver(SECRET, store, on_problem=problems.append)
        environ = {
            "REQUEST_METHOD": "POST",
            "CONTENT_LENGTH": "100",
            "wsgi.input": io.BytesIO(b"{"),
        }
        statuses = []
        wsgi_app(receiver)(environ, lambda status, _: statuses.append(status))
        self.assertEqual(statuses, ["400 Bad Request"])
        server = Uvicorn(asgi_app(receiver))
        self.addCleanup(server.close)
        port = int(server.url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        eventually(lambda: len(problems) == 2, "the second refusal")
        self.assertEqual({problem.code for problem in problems}, {"body_incomplete"})
        self.assertEqual(store.counts()["pending"], 0)

    def test_libraries_of_others_agree_with_us_both_ways(self):
        body = event("evt_1", title="Gödel – 音").decode()
        headers = sign(body, [OTHER, SECRET], id="evt_1")
        lower = {name.lower(): value for name, value in headers.items()}
        for secret in (SECRET, OTHER):
            stripe.Webhook.construct_event(body, headers["Restive-Signature"], secret)
            standardwebhooks.Webhook(secret).verify(body, lower)
            svix.Webhook(secret).verify(body, lower)
        seconds = now()
        tag = stripe.WebhookSignature._compute_signature(f"{seconds}.{body}", SECRET)
        theirs = {"Stripe-Signature": f"t={seconds},v1={tag}"}
        self.assertEqual(verify(theirs, body, SECRET).family, "timestamped")
        import datetime

        at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
        for library, prefix in ((standardwebhooks, "webhook"), (svix, "svix")):
            signature = library.Webhook(SECRET).sign("evt_1", at, body)
            sent = {
                f"{prefix}-id": "evt_1",
                f"{prefix}-timestamp": str(seconds),
                f"{prefix}-signature": signature,
            }
            self.assertEqual(verify(sent, body, [OTHER, SECRET]).family, "standard")


class Inbox(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "inbox.db")
        self.store = SqliteInbox(self.path)
        self.addCleanup(lambda: self.store.close())

    def put(self, id, fingerprint=None):
        return self.store.put(id, "t", json.dumps({"id": id}), fingerprint or id)

    def test_it_puts_claims_completes_fails_retries_and_prunes(self):
        store = self.store
        results = [self.put("a"), self.put("a"), self.put("a", "x"), self.put("b")]
        self.assertEqual(results, ["stored", "known", "different", "stored"])
        self.assertEqual([store.claim(1000, 500).id, store.claim(1000, 500).id], ["a", "b"])
        self.assertIsNone(store.claim(1400, 500))
        self.assertEqual(store.claim(1500, 500).attempt, 2, "the lease has ended")
        store.fail("a", "no", 3000.0)
        self.assertEqual(store.next_due(), 1500)
        store.complete("b")
        self.assertEqual(store.next_due(), 3000)
        self.assertIsNone(store.claim(2999, 500))
        self.assertEqual(store.claim(3000, 500).attempt, 3)
        store.fail("a", "never", None)
        dead = store.dead()[0]
        self.assertEqual((dead.id, dead.attempts, dead.error), ("a", 3, "never"))
        self.assertEqual(store.counts(), {"pending": 0, "done": 1, "dead": 1})
        self.assertEqual(
            [store.retry("a"), store.retry("a"), store.retry("x")], [True, False, False]
        )
        self.assertEqual(store.claim(5000, 500).attempt, 1)
        self.assertEqual(store.prune(time.time() + 1), 1)
        self.assertEqual(self.put("b"), "stored")
        store.set_setting("n", "1")
        store.set_setting("n", "2")
        self.assertEqual([store.setting("n"), store.setting("m")], ["2", None])

    def test_what_was_stored_survives_the_process(self):
        for id in "abc":
            self.put(id)
        taken = self.store.claim(time.time(), 60)
        self.store.complete("b")
        self.store.close()
        self.store = SqliteInbox(self.path)
        self.assertEqual(self.store.counts(), {"pending": 2, "done": 1, "dead": 0})
        self.assertEqual(self.put("b"), "known")
        again = self.store.claim(time.time(), 60)
        self.assertEqual((again.id, again.attempt), (taken.id, 2), "it was in progress")

    def test_handlers_that_crash_or_hang_are_tried_again_then_dead(self):
        def check(run, hangs):
            for id in ("ok", "raises", "hangs"):
                self.put(id)
            calls, dead = {}, []

            def count(id):
                calls[id] = calls.get(id, 0) + 1
                if id == "raises":
                    raise ValueError("raised")
                return id == "hangs" and calls[id] == 1

            run(count, lambda _, event, is_dead: is_dead and dead.append(event.id))
            self.assertEqual(calls, {"ok": 1, "raises": 3, "hangs": 2 if hangs else 1})
            self.assertEqual(dead, ["raises"])
            self.assertEqual(self.store.dead()[0].error, "raised")
            for id in ("ok", "raises", "hangs"):
                self.store.retry(id)
                self.store.complete(id)
            self.store.prune(time.time() + 1)

        def threads(count, on_error):
            released = threading.Event()

            def handler(event, _):
                if count(event["id"]):
                    released.wait(10)

            options = {"retries": (0.01, 0.01), "concurrency": 2, "on_error": on_error}
            worker = Worker(self.store, handler, **options).start()
            # One thread hangs; the other one does the rest.
            eventually(lambda: self.store.counts()["pending"] == 1, "all others")
            self.assertEqual(list(worker.running()), ["hangs"])
            released.set()
            eventually(lambda: self.store.counts()["pending"] == 0, "the one that hung")
            worker.stop()

        def tasks(count, on_error):
            async def handler(event, _):
                if count(event["id"]):
                    await asyncio.Event().wait()

            async def run():
                options = {"retries": (0.01, 0.01), "timeout": 0.1, "on_error": on_error}
                work = asyncio.create_task(AsyncWorker(self.store, handler, **options).run())
                while self.store.counts()["pending"]:
                    await asyncio.sleep(0.01)
                work.cancel()

            asyncio.run(asyncio.wait_for(run(), 20))

        check(threads, hangs=False)
        check(tasks, hangs=True)

    def test_an_event_has_20_attempts_up_to_an_hour_apart(self):
        self.put("a")
        at = 1000.0
        self.store.now = lambda: at
        times = []

        def handler(*_):
            times.append(at)
            raise ValueError("no")

        worker = Worker(self.store, handler)
        while worker.once():
            at = self.store.next_due() or at
        waits = [later - earlier for earlier, later in zip(times, times[1:])]
        self.assertEqual(waits, [2.0**number for number in range(12)] + [3600.0] * 7)
        self.assertEqual(self.store.dead()[0].attempts, 20)

    def test_a_handler_that_raises_cancelled_error_does_not_end_the_worker(self):
        for id in ("cancelled", "exits", "ok"):
            self.put(id)
        handled = []

        async def handler(event, _):
            handled.append(event["id"])
            if event["id"] == "cancelled":
                raise asyncio.CancelledError
            if event["id"] == "exits":
                raise SystemExit(3)

        async def run():
            work = asyncio.create_task(AsyncWorker(self.store, handler, retries=()).run())
            while self.store.counts()["pending"]:
                self.assertFalse(work.done(), "the worker ended")
                await asyncio.sleep(0.01)
            work.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await work

        asyncio.run(asyncio.wait_for(run(), 20))
        self.assertEqual(handled, ["cancelled", "exits", "ok"])
        self.assertEqual(self.store.counts(), {"pending": 0, "done": 1, "dead": 2})
        errors = {dead.id: dead.error for dead in self.store.dead()}
        self.assertEqual(errors["cancelled"], "the handler was cancelled")
        self.assertIn("sys.exit(3)", errors["exits"])

    def test_the_end_of_the_worker_ends_its_handler(self):
        self.put("a")
        ended = []

        async def run():
            began = asyncio.Event()

            async def handler(*_):
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("a")

            work = asyncio.create_task(AsyncWorker(self.store, handler).run())
            await began.wait()
            work.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await work

        asyncio.run(asyncio.wait_for(run(), 20))
        self.assertEqual(ended, ["a"])
        self.assertEqual(self.store.counts()["pending"], 1, "it is handled again")

    def test_a_result_that_the_store_does_not_take_at_once_is_written_again(self):
        def check(run):
            self.put("a")
            calls, errors = [], []
            complete = self.store.complete

            def failing(id):
                self.store.complete = complete
                raise OSError("the disk is full")

            self.store.complete = failing
            run(calls.append, lambda error, *_: errors.append(str(error)))
            self.assertEqual((len(calls), errors), (1, ["the disk is full"]))
            self.store.prune(time.time() + 1)

        def threads(called, on_error):
            self.assertTrue(Worker(self.store, lambda *_: called(1), on_error=on_error).once())

        def tasks(called, on_error):
            worker = AsyncWorker(self.store, lambda *_: called(1), on_error=on_error)
            self.assertTrue(asyncio.run(worker.once()))

        check(threads)
        check(tasks)

    def test_only_the_owner_may_read_the_events(self):
        self.put("a")
        for path in (self.path, f"{self.path}-wal"):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600, path)

    def test_what_is_no_event_stops_no_reconciliation(self):
        wrong = [{"id": 5, "type": "a.b", "created": 1}, None, 7, {}, {"id": "\ud800"}, {"id": ""}]
        wrong.append({"id": "x" * 256, "type": "a.b"})
        right = [{"id": "a", "type": 5}, {"id": "b", "type": "\ud800", "created": "x"}]
        right.append({"id": "c", "type": "a.b", "created": now() - 5, "data": "\ud800"})

        class Provider:
            def list(self, *_):
                return iter([*wrong, *right])

        skipped = []
        found = reconcile(Provider(), self.store, on_skipped=skipped.append)
        self.assertEqual((found, skipped), (3, wrong))
        self.assertEqual(reconcile(Provider(), self.store), 0)
        self.assertEqual(self.store.setting("reconciled_until"), str(right[2]["created"]))

    def test_a_wrong_clock_removes_no_id(self):
        day = 86_400
        real = time.time()
        # In each life of the process: how wrong its clock is at the start and later, in days.
        for clocks in (
            ((0, 41), (0, 0)),
            ((0, 0), (41, 41), (0, 0)),
            ((0, -41), (0, 0), (0, 0)),
            ((-10_000, 0), (0, 0), (10_000, -10_000), (0, 0)),
        ):
            for life, (start, end) in enumerate(clocks):
                self.store.close()
                with mock.patch("time.time", lambda days=start: real + days * day):
                    self.store = SqliteInbox(self.path)
                with mock.patch("time.time", lambda days=end: real + days * day):
                    self.put(f"{clocks} {life}")
                    self.store.complete(f"{clocks} {life}")
                    self.assertEqual(self.store.prune(), 0, (clocks, life))
                    # The age counts, by whatever clock.
                    self.assertEqual(self.store.prune(time.time() - day), 0, (clocks, life))

    def test_an_id_is_removed_after_40_days_in_which_the_inbox_was_open(self):
        # As an earlier release has stored it: by the clock of the machine, which was ahead.
        old = time.time() + 1_000 * 86_400
        self.put("old")
        self.store.complete("old")
        self.store._db.execute("UPDATE restive_inbox SET received_at = ?", (old,))
        self.store._db.execute("DELETE FROM restive_settings")
        kill(self.store)
        passed = 0.0
        clock = time.monotonic
        with mock.patch("time.monotonic", lambda: clock() + passed * 86_400):
            # How a life of the process ends, the days that pass in it, and what is removed then.
            for life, (close, days, removed) in enumerate(
                (("close", 30, 0), ("kill", 30, 2), ("close", 30, 1), ("kill", 1, 0))
            ):
                self.store = SqliteInbox(self.path)
                self.put(f"{life}")
                self.store.complete(f"{life}")
                passed += days
                # As a worker does, so the time is stored.
                self.assertIsNone(self.store.claim(time.time(), 60))
                self.assertEqual(self.store.prune(), removed, life)
                self.store.close() if close == "close" else kill(self.store)
            self.store = SqliteInbox(self.path)
            self.assertEqual([self.put("2"), self.put("3")], ["known", "known"])

    def test_the_open_time_is_that_of_all_processes(self):
        passed = 0.0
        clock = time.monotonic
        self.store.close()
        self.store = SqliteInbox(self.path, shared=True)
        with mock.patch("time.monotonic", lambda: clock() + passed * 86_400):
            passed = 39
            self.store.claim(time.time(), 60)
            other = SqliteInbox(self.path, shared=True)
            self.addCleanup(other.close)
            other.put("a", "t", "{}", "a")
            other.complete("a")
            passed = 41
            self.assertEqual([self.store.prune(), other.prune()], [0, 0])

    def test_reconciliation_queues_only_what_is_missing(self):
        sent = {"type": "book.created", "pending_webhooks": 1, "created": now()}
        events = [{"id": id, **sent} for id in "abc"]
        events.append({"id": "d", "type": "webhook_endpoint.created", "created": now()})
        queries = []

        class Provider:
            def list(self, _, query):
                queries.append(query)
                return iter(events)

        body = json.dumps({**events[1], "pending_webhooks": 0}).encode()
        Receiver(SECRET, self.store).accept("POST", signed(body, id="b"), body)
        self.assertEqual(reconcile(Provider(), self.store), 2)
        self.assertEqual(reconcile(Provider(), self.store), 0)
        # The endpoint may receive another version of the event than the list shows.
        self.assertEqual(self.put("a", "another version"), "known")
        self.assertGreater(queries[1]["min_created"], queries[0]["min_created"] + 86_400)

        class Cut:
            def list(self, *_):
                yield events[0]
                raise OSError("cut")

        before = self.store.setting("reconciled_until")
        with self.assertRaises(OSError):
            reconcile(Cut(), self.store)
        self.assertEqual(self.store.setting("reconciled_until"), before)

    def test_reconciliation_without_types_queues_what_a_webhook_would_have_brought(self):
        own = ["webhook_endpoint.created", "replay.cancelled", "erasure.created", "ping"]
        kinds = ["book.created", *own, "pinged.created"]
        queries = []

        class Provider:
            def list(self, _, query):
                queries.append(query)
                return iter([{"id": f"{len(queries)} {one}", "type": one} for one in kinds])

        for types, wanted in (
            (None, ["book.created", "pinged.created"]),
            ([], ["book.created", "pinged.created"]),
            (["*"], ["book.created", "pinged.created"]),
            (["book.*", "*"], ["book.created", "pinged.created"]),
            (["*", "ping", "replay.*"], ["book.created", own[1], "ping", "pinged.created"]),
        ):
            with self.subTest(types=types):
                self.assertEqual(reconcile(Provider(), self.store, types=types), len(wanted))
                self.assertNotIn("type", queries[-1])
                found = []
                worker = Worker(self.store, lambda event, _: found.append(event["type"]))
                while worker.once():
                    pass
                self.assertEqual(found, wanted)

    def test_an_event_from_the_future_skips_no_other_one(self):
        past = now() - 5
        times = {"a": past, "b": 4_000_000_000}
        events = [{"id": id, "type": "book.created", "created": at} for id, at in times.items()]
        queries = []

        class Provider:
            def list(self, _, query):
                queries.append(query)
                return iter(events)

        self.assertEqual(reconcile(Provider(), self.store), 2, "both are queued")
        self.assertEqual(self.store.setting("reconciled_until"), str(past))
        # As an earlier release may have stored it.
        self.store.set_setting("reconciled_until", "4000000000")
        reconcile(Provider(), self.store)
        first = now() - 3 * 86_400
        self.assertAlmostEqual(queries[1]["min_created"], first, delta=60, msg="as at first")
        # A clock that was set back a little: the position is right.
        self.store.set_setting("reconciled_until", str(now() + 200))
        reconcile(Provider(), self.store)
        self.assertAlmostEqual(queries[2]["min_created"], now() - 300, delta=60)
        self.assertLessEqual(int(self.store.setting("reconciled_until")), now())

    def test_an_effect_happens_once_and_not_at_all_if_it_fails(self):
        for isolation in ("", None):
            db = sqlite3.connect(":memory:", isolation_level=isolation)
            db.execute("CREATE TABLE effects (id TEXT)")

            def effect(connection):
                connection.execute("INSERT INTO effects VALUES ('a')")

            def failing(connection):
                effect(connection)
                raise ValueError("no")

            self.assertEqual(
                [apply_once(db, "a", effect), apply_once(db, "a", effect)], [True, False]
            )
            with self.assertRaises(ValueError):
                apply_once(db, "b", failing)
            self.assertEqual(db.execute("SELECT count(*) FROM effects").fetchone(), (1,))
            self.assertTrue(apply_once(db, "b", effect))
            db.close()


if __name__ == "__main__":
    unittest.main()
