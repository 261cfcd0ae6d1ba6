// The API client, against the real server and against servers that misbehave.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import * as restive from "restive-client";

import { KEY, Server, cut, fake, flood, html, json } from "./harness.mjs";

const { Client, meta, path } = restive;

let server;
let client;
before(async () => {
  server = await Server.start();
  client = new Client({ url: server.url, key: KEY });
});
after(() => server.kill());

const deadline = { timeout: 30_000 };

test("a record is created, read, changed, replaced and deleted", deadline, async () => {
  const books = client.collection("/v1/books");
  const book = await books.create({ title: "Dune", author: "Frank Herbert", price: 9.5 });
  assert.equal(book.object, "book");
  assert.deepEqual(await books.get(book.id), book);
  const cheaper = await books.update(book.id, { price: null });
  assert.deepEqual([cheaper.price, cheaper.title], [null, "Dune"]);
  const replaced = await books.replace(book.id, { title: "Dune II", author: "F. H." });
  assert.equal(replaced.title, "Dune II");
  await books.delete(book.id);
  await books.delete(book.id);
  await assert.rejects(books.get(book.id), restive.NotFoundError);
});

test("a list gives one page, or every record of all pages", deadline, async () => {
  const books = client.collection("/v1/books");
  const author = `A. ${crypto.randomUUID()}`;
  for (let number = 0; number < 25; number += 1) {
    await books.create({ title: `Book ${number}`, author, price: number });
  }
  const page = await books.list({ author, limit: 10, sort: "price" });
  assert.deepEqual([page.data.length, page.hasMore], [10, true]);
  assert.match(page.position, /^\w+\.\d+$/);
  assert.equal((await page.next()).data[0].price, 10);
  const prices = [];
  for await (const book of books.list({ author, limit: 10, sort: ["price"] }))
    prices.push(book.price);
  assert.deepEqual(prices, [...Array(25).keys()]);
  assert.equal((await books.list({ author, limit: 4, page: 1 })).total, 25);
  assert.equal((await books.list({ author, limit: 4, page: 1 }).toArray()).length, 25);
  assert.equal((await books.list({ author, limit: 4 }).toArray(7)).length, 7);
  const sizes = [];
  for await (const { data } of books.list({ author, limit: 20 }).pages()) sizes.push(data.length);
  assert.deepEqual(sizes, [20, 5]);
});

test("a filter finds texts with commas, quotes and the word null", deadline, async () => {
  const books = client.collection("/v1/books");
  for (const author of ["Tolkien, J. R. R.", '"quoted", twice', "null", 'back\\slash, "x"']) {
    const { id } = await books.create({ title: "T", author });
    const found = await books.list({ author });
    assert.ok(
      found.data.some((book) => book.id === id),
      author,
    );
    assert.ok(
      found.data.every((book) => book.author === author),
      author,
    );
  }
  const without = await books.list({ price: null, author: ["null", "Tolkien, J. R. R."] });
  assert.ok(without.data.length >= 2 && without.data.every((book) => book.price === null));
});

test("expand embeds, fields selects, children and actions have paths", deadline, async () => {
  const book = await client.post("/v1/books", { title: "Dune", author: "F" });
  const order = await client.post("/v1/orders", { book: book.id });
  const orders = client.collection("/v1/orders");
  assert.equal((await orders.get(order.id, { expand: "book" })).book.title, "Dune");
  assert.equal((await orders.get(order.id, { fields: ["status"] })).status, "created");
  assert.equal((await orders.action(order.id, "pay")).status, "paid");
  await client.post(path`/v1/books/${book.id}/reviews`, { rating: 5 });
  assert.equal((await client.list(path`/v1/books/${book.id}/reviews`)).data[0].rating, 5);
  for (const id of ["", ".", ".."]) assert.throws(() => path`/v1/books/${id}`, TypeError);
  assert.equal(path`/v1/books/${"a/b?c"}`, "/v1/books/a%2Fb%3Fc");
});

test("an ETag guards a write and saves a transfer", deadline, async () => {
  const books = client.collection("/v1/books");
  const { id } = await books.create({ title: "Dune", author: "F" });
  const read = await books.get(id);
  assert.equal(meta(read).status, 200);
  const again = await books.get(id);
  assert.equal(meta(again).status, 304);
  assert.deepEqual(again, read);
  again.title = "changed by the caller";
  assert.equal((await books.get(id)).title, "Dune");
  await books.update(id, { price: 1 }, { ifMatch: read });
  await assert.rejects(
    books.update(id, { price: 2 }, { ifMatch: read }),
    restive.PreconditionError,
  );
  const etag = meta(await books.get(id)).etag;
  await books.update(id, { price: 3 }, { ifMatch: etag });
  await assert.rejects(books.update(id, { price: 4 }, { ifMatch: {} }), TypeError);
});

test("the same key creates one record", deadline, async () => {
  const books = client.collection("/v1/books");
  const options = { idempotencyKey: crypto.randomUUID() };
  const first = await books.create({ title: "Dune", author: "F" }, options);
  const second = await books.create({ title: "Dune", author: "F" }, options);
  assert.equal(first.id, second.id);
  assert.deepEqual([meta(first).replayed, meta(second).replayed], [false, true]);
  const other = books.create({ title: "Emma", author: "F" }, options);
  await assert.rejects(other, restive.IdempotencyError);
});

test("errors are classes with the details of the server", deadline, async () => {
  const book = await client.post("/v1/books", { title: "Dune", author: "F" });
  const order = await client.post("/v1/orders", { book: book.id });
  const intent = { amount: 5, currency: "eur", payment_method: "pm_card_declined" };
  const payment = await client.post("/v1/payment-intents", intent);
  const stranger = new Client({ url: server.url, key: "sk_test_unknown" });
  for (const [request, Class, code] of [
    [() => client.get("/v1/books", { nonsense: 1 }), restive.BadRequestError, "unknown_parameter"],
    [() => stranger.get("/v1/books"), restive.AuthenticationError, "invalid_api_key"],
    [
      () => client.post(path`/v1/payment-intents/${payment.id}/confirm`),
      restive.PaymentError,
      "card_declined",
    ],
    [() => client.get("/v1/books/book_none"), restive.NotFoundError, "not_found"],
    [() => client.post(path`/v1/orders/${order.id}/ship`), restive.ConflictError, "invalid_state"],
    [() => client.post("/v1/books", { title: 7 }), restive.ValidationError, "validation_failed"],
    [
      () => client.get("/v1/books", {}, { version: "1999-01-01" }),
      restive.BadRequestError,
      "unknown_version",
    ],
  ]) {
    const error = await request().then(
      () => assert.fail(code),
      (error) => error,
    );
    assert.ok(error instanceof Class && error instanceof restive.RestiveError, error.stack);
    assert.equal(error.code, code);
    assert.ok(error.requestId && error.message && error.name === Class.name, code);
  }
  const error = await client.post("/v1/books", { title: 7, prise: 1 }).catch((error) => error);
  assert.deepEqual(
    error.errors.map(({ field }) => field),
    ["prise", "title", "author"],
  );
});

test("the version of the client is the one of its requests", deadline, async () => {
  const pinned = new Client({ url: server.url, key: KEY, version: "2026-11-01" });
  const page = await pinned.list("/v1/books");
  assert.equal(meta(page).headers.get("restive-version"), "2026-11-01");
});

const ok = json(200, { id: "x" });
const limited = json(
  429,
  { error: { code: "rate_limited", type: "rate_limit_error" } },
  { "Retry-After": "0.2" },
);
const busy = json(503, { error: { code: "overloaded" } }, { "Retry-After": "0" });
const inUse = json(
  409,
  { error: { code: "idempotency_key_in_use", type: "idempotency_error" } },
  { "Retry-After": "0" },
);
const partial = cut({ type: "application/json", text: '{"id":' });

// steps of the server, the request, the expected number of requests, and the expected error
for (const [name, steps, send, count, Class] of [
  ["429 is repeated after Retry-After", [limited, ok], (c) => c.post("/x", {}), 2],
  ["503 is repeated", [busy, busy, ok], (c) => c.get("/x"), 3],
  ["a running request with the same key is waited for", [inUse, ok], (c) => c.post("/x", {}), 2],
  ["a broken connection is repeated", [cut(), ok], (c) => c.post("/x", {}), 2],
  ["a body that ends too early is repeated", [partial, ok], (c) => c.patch("/x", {}), 2],
  ["an HTML page with 502 is repeated", [html(502), ok], (c) => c.get("/x"), 2],
  [
    "an HTML page with 200 is an error",
    [html(200)],
    (c) => c.get("/x"),
    1,
    restive.InvalidResponseError,
  ],
  ["an HTML page with 404 is an error", [html(404)], (c) => c.get("/x"), 1, restive.NotFoundError],
  [
    "a list that is none is an error",
    [json(200, [1])],
    (c) => c.list("/x"),
    1,
    restive.InvalidResponseError,
  ],
  [
    "a cursor that does not move is an error",
    [json(200, { data: [1], pagination: { next_cursor: "c", has_more: true } })],
    (c) => c.list("/x").toArray(),
    2,
    restive.InvalidResponseError,
  ],
  [
    "a conditional PUT is not repeated",
    [cut(), ok],
    (c) => c.put("/x", {}, { ifMatch: '"1"' }),
    1,
    restive.ConnectionError,
  ],
  ["a plain PUT is repeated", [cut(), ok], (c) => c.put("/x", {}), 2],
  [
    "a rule that fails is not repeated",
    [json(500, { error: { code: "rule_failed" } })],
    (c) => c.get("/x"),
    1,
    restive.ServerError,
  ],
  [
    "a long Retry-After is left to the caller",
    [json(429, { error: { code: "rate_limited" } }, { "Retry-After": "120" })],
    (c) => c.get("/x"),
    1,
    restive.RateLimitError,
  ],
  [
    "a server that is always busy is an error",
    [busy],
    (c) => c.get("/x", {}, { maxRetries: 2 }),
    3,
    restive.ServerError,
  ],
  [
    "a flat error has its message",
    [json(400, { message: "no", documentation_url: "/e" })],
    (c) => c.get("/x"),
    1,
    restive.BadRequestError,
  ],
  [
    "an error with a body of another type is an error",
    [json(400, [1, 2])],
    (c) => c.get("/x"),
    1,
    restive.BadRequestError,
  ],
  [
    "a redirect is not followed",
    [(r) => r.writeHead(302, { Location: "/y" }).end()],
    (c) => c.get("/x", {}, { maxRetries: 0 }),
    1,
    restive.ConnectionError,
  ],
  [
    "silence is a timeout",
    [() => undefined],
    (c) => c.get("/x", {}, { timeout: 1000, maxRetries: 0 }),
    1,
    restive.TimeoutError,
  ],
  ["a refused key is renewed once", [json(401, {}), ok], (c) => c.get("/x"), 2],
  [
    "a key that stays refused is an error",
    [json(401, {})],
    (c) => c.get("/x"),
    2,
    restive.AuthenticationError,
  ],
]) {
  test(name, deadline, async () => {
    const { url, requests, close } = await fake(...steps);
    const asked = [];
    const key = (refused) => (asked.push(refused), `key${asked.length}`);
    const client = new Client({ url, key, maxRetries: 3 });
    try {
      const result = await Promise.resolve(send(client)).catch((error) => error);
      if (Class) assert.ok(result instanceof Class, String(result?.stack));
      else assert.equal(result.id, "x", String(result?.stack));
    } finally {
      close();
    }
    assert.equal(requests.length, count);
    const keys = new Set(requests.map(({ headers }) => headers["idempotency-key"]));
    assert.equal(keys.size, 1, "all attempts have the same key");
    const writes = requests.every(({ method }) => method === "POST" || method === "PATCH");
    assert.equal(!keys.has(undefined), writes);
    if (name.startsWith("429")) assert.ok(requests[1].at - requests[0].at >= 190);
    const refused = requests.length > 1 && name.includes("key");
    if (refused && !name.includes("waited")) assert.deepEqual(asked, [false, true]);
  });
}

test("an aborted request ends at once", deadline, async () => {
  const { url, close } = await fake(() => undefined);
  const abort = new AbortController();
  const request = new Client({ url }).get("/x", {}, { signal: abort.signal });
  setTimeout(() => abort.abort(new Error("enough")), 50);
  await assert.rejects(request, /enough/);
  close();
});

test("the cache keeps a hundred responses, and none of more than 256 KiB", deadline, async () => {
  const answer = (response, { url }) => {
    const body = JSON.stringify({ text: url === "/large" ? "x".repeat(300_000) : "x" });
    response.writeHead(200, { "Content-Type": "application/json", ETag: '"1"' }).end(body);
  };
  const { url, requests, close } = await fake(answer);
  const client = new Client({ url });
  const isAsked = async (path) => {
    await client.get(path);
    return requests.at(-1).headers["if-none-match"] !== undefined;
  };
  for (let number = 0; number < 101; number += 1) await client.get(`/${number}`);
  assert.deepEqual([await isAsked("/100"), await isAsked("/0")], [true, false]);
  await client.get("/large");
  assert.equal(await isAsked("/large"), false);
  close();
});

test("a body without an end is not read", deadline, async () => {
  // status, number of requests, error
  for (const [status, count, error] of [
    [200, 1, restive.InvalidResponseError],
    [503, 2, restive.ServerError],
  ]) {
    const { step, sent } = flood(status);
    const { url, requests, close } = await fake(step);
    const client = new Client({ url, key: "k", maxRetries: 1 });
    await assert.rejects(client.get("/v1/books"), error);
    close();
    assert.equal(requests.length, count);
    assert.ok(sent.bytes < count * 64 * 1024 * 1024, `${sent.bytes} bytes were sent`);
  }
});
