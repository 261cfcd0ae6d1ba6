"""The API client, sync and async, against the real server and servers that misbehave."""

import asyncio
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor

import restive_client as restive
from harness import KEY, Fake, Flood, Server, cut, html, reply, silence
from restive_client import AsyncClient, Client, meta, path

server = None


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.kill()


class Sync(unittest.TestCase):
    def setUp(self):
        self.client = Client(server.url, KEY)
        self.addCleanup(self.client.close)
        self.books = self.client.collection("/v1/books")

    def test_a_record_is_created_read_changed_replaced_and_deleted(self):
        book = self.books.create({"title": "Dune", "author": "Frank Herbert", "price": 9.5})
        self.assertEqual(self.books.get(book["id"]), book)
        cheaper = self.books.update(book["id"], {"price": None})
        self.assertEqual([cheaper["price"], cheaper["title"]], [None, "Dune"])
        replaced = self.books.replace(book["id"], {"title": "Dune II", "author": "F. H."})
        self.assertEqual(replaced["title"], "Dune II")
        self.books.delete(book["id"])
        self.books.delete(book["id"])
        with self.assertRaises(restive.NotFound):
            self.books.get(book["id"])

    def test_a_list_gives_one_page_or_every_record_of_all_pages(self):
        author = f"A. {uuid.uuid4()}"
        for number in range(25):
            self.books.create({"title": f"Book {number}", "author": author, "price": number})
        page = self.books.list({"author": author, "limit": 10, "sort": "price"}).first()
        self.assertEqual([len(page), page.has_more], [10, True])
        self.assertRegex(page.position, r"^\w+\.\d+$")
        every = self.books.list({"author": author, "limit": 10, "sort": ["price"]})
        self.assertEqual([book["price"] for book in every], list(range(25)))
        paged = self.books.list({"author": author, "limit": 4, "page": 1})
        self.assertEqual([paged.first().total, len(paged.to_list())], [25, 25])
        self.assertEqual(len(self.books.list({"author": author, "limit": 4}).to_list(7)), 7)
        sizes = [len(page) for page in self.books.list({"author": author, "limit": 20}).pages()]
        self.assertEqual(sizes, [20, 5])

    def test_a_filter_finds_texts_with_commas_quotes_and_the_word_null(self):
        for author in ("Tolkien, J. R. R.", '"quoted", twice', "null", 'back\\slash, "x"'):
            with self.subTest(author):
                book = self.books.create({"title": "T", "author": author})
                found = self.books.list({"author": author}).to_list()
                self.assertIn(book["id"], [one["id"] for one in found])
                self.assertEqual({one["author"] for one in found}, {author})
        without = self.books.list({"price": None, "author": ["null", "Tolkien, J. R. R."]})
        self.assertTrue(all(book["price"] is None for book in without))
        self.assertGreaterEqual(len(without.to_list()), 2)

    def test_expand_embeds_fields_selects_children_and_actions_have_paths(self):
        book = self.client.post("/v1/books", {"title": "Dune", "author": "F"})
        orders = self.client.collection("/v1/orders")
        order = orders.create({"book": book["id"]})
        self.assertEqual(orders.get(order["id"], {"expand": "book"})["book"]["title"], "Dune")
        self.assertEqual(orders.get(order["id"], {"fields": ["status"]})["status"], "created")
        self.assertEqual(orders.action(order["id"], "pay")["status"], "paid")
        reviews = path("/v1/books/{}/reviews", book["id"])
        self.client.post(reviews, {"rating": 5})
        self.assertEqual(self.client.list(reviews).first().data[0]["rating"], 5)
        self.assertEqual(path("/v1/books/{}", "a/b?c"), "/v1/books/a%2Fb%3Fc")
        for id in ("", ".", ".."):
            with self.assertRaises(ValueError):
                path("/v1/books/{}", id)

    def test_an_etag_guards_a_write_and_saves_a_transfer(self):
        id = self.books.create({"title": "Dune", "author": "F"})["id"]
        read = self.books.get(id)
        again = self.books.get(id)
        self.assertEqual([meta(read).status, meta(again).status, again], [200, 304, read])
        again["title"] = "changed by the caller"
        self.assertEqual(self.books.get(id)["title"], "Dune")
        self.books.update(id, {"price": 1}, if_match=read)
        with self.assertRaises(restive.PreconditionFailed):
            self.books.update(id, {"price": 2}, if_match=read)
        self.books.update(id, {"price": 3}, if_match=meta(self.books.get(id)).etag)
        with self.assertRaises(ValueError):
            self.books.update(id, {"price": 4}, if_match={})

    def test_the_same_key_creates_one_record(self):
        key = str(uuid.uuid4())
        first = self.books.create({"title": "Dune", "author": "F"}, idempotency_key=key)
        second = self.books.create({"title": "Dune", "author": "F"}, idempotency_key=key)
        self.assertEqual(first["id"], second["id"])
        self.assertEqual([meta(first).replayed, meta(second).replayed], [False, True])
        with self.assertRaises(restive.IdempotencyConflict):
            self.books.create({"title": "Emma", "author": "F"}, idempotency_key=key)

    def test_errors_are_classes_with_the_details_of_the_server(self):
        client = self.client
        book = client.post("/v1/books", {"title": "Dune", "author": "F"})
        order = client.post("/v1/orders", {"book": book["id"]})
        intent = {"amount": 5, "currency": "eur", "payment_method": "pm_card_declined"}
        payment = client.post("/v1/payment-intents", intent)
        confirm = path("/v1/payment-intents/{}/confirm", payment["id"])
        ship = path("/v1/orders/{}/ship", order["id"])
        stranger = Client(server.url, "sk_test_unknown")
        self.addCleanup(stranger.close)
        for request, kind, code in (
            (
                lambda: client.get("/v1/books", {"nonsense": 1}),
                restive.BadRequest,
                "unknown_parameter",
            ),
            (lambda: stranger.get("/v1/books"), restive.AuthenticationFailed, "invalid_api_key"),
            (lambda: client.post(confirm), restive.PaymentFailed, "card_declined"),
            (lambda: client.get("/v1/books/book_none"), restive.NotFound, "not_found"),
            (lambda: client.post(ship), restive.Conflict, "invalid_state"),
            (
                lambda: client.post("/v1/books", {"title": 7}),
                restive.ValidationFailed,
                "validation_failed",
            ),
            (
                lambda: client.get("/v1/books", version="1999-01-01"),
                restive.BadRequest,
                "unknown_version",
            ),
        ):
            with self.subTest(code), self.assertRaises(kind) as raised:
                request()
            self.assertEqual(raised.exception.code, code)
            self.assertTrue(raised.exception.request_id and str(raised.exception))
        with self.assertRaises(restive.ValidationFailed) as raised:
            client.post("/v1/books", {"title": 7, "prise": 1})
        fields = [error["field"] for error in raised.exception.errors]
        self.assertEqual(fields, ["prise", "title", "author"])

    def test_the_version_of_the_client_is_the_one_of_its_requests(self):
        with Client(server.url, KEY, version="2026-11-01") as pinned:
            page = pinned.list("/v1/books").first()
        self.assertEqual(meta(page).headers["restive-version"], "2026-11-01")


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_the_async_client_does_the_same(self):
        async with AsyncClient(server.url, KEY) as client:
            books = client.collection("/v1/books")
            author = f"A. {uuid.uuid4()}"
            for number in range(5):
                await books.create({"title": f"{number}", "author": author, "price": number})
            listed = books.list({"author": author, "limit": 2, "sort": "price"})
            self.assertEqual([book["price"] async for book in listed], list(range(5)))
            self.assertEqual(len(await listed.to_list(3)), 3)
            page = await listed.first()
            record = await books.get(page.data[0]["id"])
            await books.update(record["id"], {"price": 9}, if_match=record)
            with self.assertRaises(restive.PreconditionFailed):
                await books.update(record["id"], {"price": 8}, if_match=record)
            replaced = await books.replace(record["id"], {"title": "T", "author": author})
            self.assertIsNone(replaced["price"])
            order = await client.post("/v1/orders", {"book": record["id"]})
            paid = await client.collection("/v1/orders").action(order["id"], "pay")
            self.assertEqual(paid["status"], "paid")


OK = reply(200, {"id": "x"})
LIMITED = reply(429, {"error": {"code": "rate_limited"}}, {"Retry-After": "0.2"})
BUSY = reply(503, {"error": {"code": "overloaded"}}, {"Retry-After": "0"})
IN_USE = reply(
    409,
    {"error": {"code": "idempotency_key_in_use", "type": "idempotency_error"}},
    {"Retry-After": "0"},
)
SAME_CURSOR = reply(200, {"data": [1], "pagination": {"next_cursor": "c", "has_more": True}})

# name, steps of the server, request, number of requests, expected error
CASES = [
    ("429 is repeated after Retry-After", [LIMITED, OK], lambda c: c.post("/x", {}), 2, None),
    ("503 is repeated", [BUSY, BUSY, OK], lambda c: c.get("/x"), 3, None),
    ("a running request is waited for", [IN_USE, OK], lambda c: c.post("/x", {}), 2, None),
    ("a broken connection is repeated", [cut(), OK], lambda c: c.post("/x", {}), 2, None),
    ("a body that ends too early", [cut('{"id":'), OK], lambda c: c.patch("/x", {}), 2, None),
    ("an HTML page with 502", [html(502), OK], lambda c: c.get("/x"), 2, None),
    ("an HTML page with 200", [html(200)], lambda c: c.get("/x"), 1, restive.InvalidResponse),
    ("an HTML page with 404", [html(404)], lambda c: c.get("/x"), 1, restive.NotFound),
    (
        "a list that is none",
        [reply(200, [1])],
        lambda c: c.list("/x").first(),
        1,
        restive.InvalidResponse,
    ),
    (
        "a cursor that does not move",
        [SAME_CURSOR],
        lambda c: c.list("/x").to_list(),
        2,
        restive.InvalidResponse,
    ),
    (
        "a conditional PUT",
        [cut(), OK],
        lambda c: c.put("/x", {}, if_match='"1"'),
        1,
        restive.ConnectionFailed,
    ),
    ("a plain PUT", [cut(), OK], lambda c: c.put("/x", {}), 2, None),
    (
        "a rule that fails",
        [reply(500, {"error": {"code": "rule_failed"}})],
        lambda c: c.get("/x"),
        1,
        restive.ServerError,
    ),
    (
        "a long Retry-After",
        [reply(429, {}, {"Retry-After": "120"})],
        lambda c: c.get("/x"),
        1,
        restive.RateLimited,
    ),
    ("always busy", [BUSY], lambda c: c.get("/x", max_retries=2), 3, restive.ServerError),
    ("a flat error", [reply(400, {"message": "no"})], lambda c: c.get("/x"), 1, restive.BadRequest),
    ("an error that is a list", [reply(400, [1])], lambda c: c.get("/x"), 1, restive.BadRequest),
    (
        "a redirect",
        [reply(302, {}, {"Location": "/y"})],
        lambda c: c.get("/x"),
        1,
        restive.ApiError,
    ),
    (
        "silence",
        [silence],
        lambda c: c.get("/x", timeout=0.5, max_retries=0),
        1,
        restive.RequestTimeout,
    ),
    ("a refused key", [reply(401, {}), OK], lambda c: c.get("/x"), 2, None),
    (
        "a key that stays refused",
        [reply(401, {})],
        lambda c: c.get("/x"),
        2,
        restive.AuthenticationFailed,
    ),
]


class Misbehaving(unittest.TestCase):
    def check(self, case, result, fake, asked):
        name, _, _, count, kind = case
        if kind is None:
            self.assertEqual(result, {"id": "x"}, repr(result))
        else:
            self.assertIsInstance(result, kind)
        self.assertEqual(len(fake.requests), count)
        keys = {request["headers"].get("idempotency-key") for request in fake.requests}
        self.assertEqual(len(keys), 1, "all attempts have the same key")
        writes = all(request["method"] in ("POST", "PATCH") for request in fake.requests)
        self.assertEqual(None not in keys, writes)
        if name.startswith("429"):
            self.assertGreaterEqual(fake.requests[1]["at"] - fake.requests[0]["at"], 0.19)
        if "key" in name:
            self.assertEqual(asked, [False, True])

    def test_the_sync_client_repeats_what_is_safe_and_reports_the_rest(self):
        def run(case):
            asked = []
            with Fake(*case[1]) as fake:
                with Client(fake.url, lambda refused: asked.append(refused) or "key") as client:
                    try:
                        return case[2](client), fake, asked
                    except restive.RestiveError as error:
                        return error, fake, asked

        # Most cases wait for a delay, so they wait together.
        with ThreadPoolExecutor(len(CASES)) as pool:
            for case, outcome in zip(CASES, pool.map(run, CASES)):
                with self.subTest(case[0]):
                    self.check(case, *outcome)

    def test_the_cache_keeps_a_hundred_responses_and_no_large_one(self):
        def answer(handler):
            large = handler.path == "/large"
            reply(200, {"text": "x" * (300_000 if large else 1)}, {"ETag": '"1"'})(handler)

        with Fake(answer) as fake, Client(fake.url) as client:

            def is_asked(path):
                client.get(path)
                return "if-none-match" in fake.requests[-1]["headers"]

            for number in range(101):
                client.get(f"/{number}")
            self.assertEqual([is_asked("/100"), is_asked("/0")], [True, False])
            client.get("/large")
            self.assertFalse(is_asked("/large"))

    def test_a_body_without_an_end_is_not_read(self):
        async def get(url):
            async with AsyncClient(url, "k", max_retries=1) as client:
                await client.get("/x")

        # status, number of requests, error
        cases = ((200, 1, restive.InvalidResponse), (503, 2, restive.ServerError))
        for status, count, error in cases:
            for is_async in (False, True):
                flood = Flood(status)
                with Fake(flood) as fake, Client(fake.url, "k", max_retries=1) as client:
                    with self.assertRaises(error):
                        asyncio.run(get(fake.url)) if is_async else client.get("/x")
                    self.assertEqual(len(fake.requests), count)
                    self.assertLess(flood.sent, count * 64 * 2**20)

    def test_the_async_client_does_the_same(self):
        async def run(case):
            asked = []

            async def key(refused):
                asked.append(refused)
                return "key"

            with Fake(*case[1]) as fake:
                async with AsyncClient(fake.url, key) as client:
                    try:
                        return await case[2](client), fake, asked
                    except restive.RestiveError as error:
                        return error, fake, asked

        async def run_all():
            return await asyncio.gather(*map(run, CASES))

        for case, outcome in zip(CASES, asyncio.run(run_all())):
            with self.subTest(case[0]):
                self.check(case, *outcome)


if __name__ == "__main__":
    unittest.main()
