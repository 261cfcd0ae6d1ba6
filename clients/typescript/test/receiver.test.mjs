// The receiver: what it answers to each kind of request, what it stores, and what workers do.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect } from "node:net";
import test, { after } from "node:test";

import { SqliteStore, applyOnce, networks, nodeHandler } from "restive-client/node";
import {
  MAX_WAITING,
  MemoryStore,
  Receiver,
  Worker,
  fetchHandler,
  reconcile,
} from "restive-client/receiver";
import { sign, verify } from "restive-client/webhook";

import { eventually, library, newEvent } from "./harness.mjs";
import { STORES, ahead, folder, sqlite } from "./stores.mjs";

const SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const OTHER = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
const LIMIT = 4096;
const deadline = { timeout: 30_000 };
const now = () => Math.floor(Date.now() / 1000);

const open = [];
after(() => open.forEach((server) => server.closeAllConnections?.()));

async function listen(listener) {
  const server = createServer(listener);
  open.push(server);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  return server.address().port;
}

/** Each handler as a function from a request to its status and body. */
const HANDLERS = {
  async fetch(receiver) {
    const handler = fetchHandler(receiver);
    return (init) => handler(new Request("http://receiver/hook", { duplex: "half", ...init }));
  },
  async node(receiver) {
    const port = await listen(nodeHandler(receiver));
    return (init) => fetch(`http://127.0.0.1:${port}/hook`, init);
  },
  async express(receiver) {
    const express = library("express");
    const app = express();
    app.all("/hook", nodeHandler(receiver));
    app.use(express.json());
    app.post("/late", nodeHandler(receiver));
    const port = await listen(app);
    return (init, path = "/hook") => fetch(`http://127.0.0.1:${port}${path}`, init);
  },
  async expressRaw(receiver) {
    const express = library("express");
    const app = express().use(express.raw({ type: "*/*", limit: "20mb" }));
    app.all("/hook", nodeHandler(receiver));
    const port = await listen(app);
    return (init) => fetch(`http://127.0.0.1:${port}/hook`, init);
  },
};

const event = (id, more = {}) =>
  JSON.stringify({ id, object: "event", type: "book.created", ...more });
const bytes = (text) => new TextEncoder().encode(text);
const signed = (body, options = {}) => sign(body, { secrets: SECRET, id: "evt_1", ...options });
const nested = (depth) => bytes(`{"id":"evt_1","a":${"[".repeat(depth)}${"]".repeat(depth)}}`);

// name, request, expected status, expected code
const BAD = [
  [
    "unsigned",
    async () => ({ body: bytes(event("evt_1")), headers: {} }),
    401,
    "signature_missing",
  ],
  [
    "wrong secret",
    async () => ({
      body: bytes(event("evt_1")),
      headers: await signed(event("evt_1"), { secrets: OTHER }),
    }),
    401,
    "signature_no_match",
  ],
  [
    "stale",
    async () => ({
      body: bytes(event("evt_1")),
      headers: await signed(event("evt_1"), { timestamp: now() - 400 }),
    }),
    401,
    "signature_too_old",
  ],
  [
    "future",
    async () => ({
      body: bytes(event("evt_1")),
      headers: await signed(event("evt_1"), { timestamp: now() + 400 }),
    }),
    401,
    "signature_too_new",
  ],
  [
    "truncated body",
    async () => ({
      body: bytes(event("evt_1").slice(0, -3)),
      headers: await signed(event("evt_1")),
    }),
    401,
    "signature_no_match",
  ],
  [
    "empty body, unsigned",
    async () => ({ body: bytes(""), headers: {} }),
    401,
    "signature_missing",
  ],
  [
    "empty body, signed",
    async () => ({ body: bytes(""), headers: await signed("") }),
    400,
    "invalid_body",
  ],
  [
    "10 MB",
    async () => ({ body: new Uint8Array(10_000_000).fill(97), headers: {} }),
    413,
    "body_too_large",
  ],
  [
    "not JSON",
    async () => ({ body: bytes("hello"), headers: await signed("hello") }),
    400,
    "invalid_body",
  ],
  [
    "an array",
    async () => ({ body: bytes("[1]"), headers: await signed("[1]") }),
    400,
    "invalid_body",
  ],
  ["a number", async () => ({ body: bytes("7"), headers: await signed("7") }), 400, "invalid_body"],
  [
    "not UTF-8",
    async () => ({
      body: new Uint8Array([0x7b, 0xff, 0x7d]),
      headers: await signed(new Uint8Array([0x7b, 0xff, 0x7d])),
    }),
    400,
    "invalid_body",
  ],
  [
    "id is a number",
    async () => ({ body: bytes('{"id":7}'), headers: timestamped(await signed('{"id":7}')) }),
    400,
    "invalid_id",
  ],
  [
    "id is too long",
    async () => ({
      body: bytes(event("x".repeat(256))),
      headers: timestamped(await signed(event("x".repeat(256)))),
    }),
    400,
    "invalid_id",
  ],
  ["a GET", async () => ({ method: "GET", headers: {} }), 405, "method_not_allowed"],
];

/** Without the signed id of Standard Webhooks. */
function timestamped({ "Restive-Signature": header }) {
  return { "Restive-Signature": header };
}

for (const [kind, handler] of Object.entries(HANDLERS)) {
  test(`${kind}: bad requests are refused with a reason and not stored`, deadline, async () => {
    const store = new MemoryStore();
    const problems = [];
    const receiver = new Receiver({
      secrets: SECRET,
      store,
      maxBodyBytes: LIMIT,
      onProblem: (problem) => problems.push(problem),
    });
    const send = await handler(receiver);
    for (const [name, make, status, code] of BAD) {
      const response = await send({ method: "POST", ...(await make()) });
      const { error } = await response.json();
      assert.deepEqual([response.status, error.code], [status, code], `${name}: ${error.message}`);
      assert.equal(problems.at(-1).code, code, name);
      assert.ok(!JSON.stringify([error, problems.at(-1)]).includes(SECRET));
    }
    assert.deepEqual(await store.counts(), { pending: 0, done: 0, dead: 0 });
  });

  test(
    `${kind}: an event is stored once, also if it comes again with another body`,
    deadline,
    async () => {
      const store = new MemoryStore();
      const problems = [];
      const onProblem = ({ code }) => problems.push(code);
      const receiver = new Receiver({ secrets: [OTHER, SECRET], store, onProblem });
      const send = await handler(receiver);
      const post = async (body) => {
        const response = await send({ method: "POST", headers: await signed(body), body });
        return [response.status, (await response.json()).duplicate ?? false];
      };
      assert.deepEqual(await post(event("evt_1", { pending_webhooks: 2 })), [200, false]);
      assert.deepEqual(await post(event("evt_1", { pending_webhooks: 1 })), [200, true]);
      assert.deepEqual(problems, []);
      assert.deepEqual(await post(event("evt_1", { data: { object: { price: 0 } } })), [200, true]);
      assert.deepEqual(problems, ["different_body"]);
      const handled = [];
      const worker = new Worker(store, (event) => void handled.push(event));
      while (await worker.once());
      assert.deepEqual(handled, [JSON.parse(event("evt_1", { pending_webhooks: 2 }))]);
      assert.deepEqual(await post(event("evt_1", { pending_webhooks: 0 })), [200, true]);
      assert.equal(await worker.once(), false);
    },
  );
}

test("HTTPS and addresses are required if that is set", deadline, async () => {
  const local = networks("127.0.0.0/8", "::1");
  const headers = await signed(event("evt_1"));
  const init = { method: "POST", headers, body: event("evt_1") };
  const options = { secrets: SECRET, httpsOnly: true, allow: local };
  const over = { secure: true, address: "::ffff:127.0.0.1" };
  // how a request arrived, expected status, expected code
  const cases = [
    [{ ...over, secure: false }, 403, "https_required"],
    [{ ...over, secure: undefined }, 403, "https_required"],
    [{ ...over, address: "192.0.2.1" }, 403, "address_not_allowed"],
    [{ ...over, address: "no address" }, 403, "address_not_allowed"],
    [{ ...over, address: undefined }, 403, "address_not_allowed"],
    [over, 200, undefined],
    [{ ...over, address: "::1" }, 200, undefined],
  ];
  for (const [source, status, code] of cases) {
    const receiver = new Receiver({ ...options, store: new MemoryStore() });
    const fetched = fetchHandler(receiver, () => source);
    const port = await listen(nodeHandler(receiver, () => source));
    for (const response of [
      await fetched(new Request("http://receiver/hook", { duplex: "half", ...init })),
      await fetch(`http://127.0.0.1:${port}/hook`, init),
    ]) {
      const found = (await response.json()).error?.code;
      assert.deepEqual([response.status, found], [status, code], JSON.stringify(source));
    }
  }
  // What a server knows by itself.
  const send = async (more) => {
    const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore(), ...more });
    const response = await (await HANDLERS.node(receiver))(init);
    return response.status;
  };
  assert.equal(await send({ allow: local }), 200);
  assert.equal(await send({ allow: networks("192.0.2.0/24") }), 403);
  assert.equal(await send({ httpsOnly: true }), 403);
  const broken = () => {
    throw new Error("no list");
  };
  assert.equal(await send({ allow: broken }), 403, "a check that fails allows nobody");
  const request = (url) => new Request(url, { duplex: "half", ...init });
  const secure = fetchHandler(
    new Receiver({ secrets: SECRET, store: new MemoryStore(), httpsOnly: true }),
  );
  assert.equal((await secure(request("http://receiver/hook"))).status, 403);
  assert.equal((await secure(request("https://receiver/hook"))).status, 200);
  for (const wrong of ["nonsense", "192.0.2.0/x", "192.0.2.0/33"]) {
    assert.throws(() => networks(wrong), wrong);
  }
});

test("later events about one record are not taken for the first", deadline, async () => {
  const store = new MemoryStore();
  const receiver = new Receiver({ secrets: SECRET, store });
  // A third party: the body is the record, and the signed id is that of the message.
  const body = JSON.stringify({ id: "user_1", type: "user.updated" });
  for (const id of ["msg_1", "msg_2", "msg_1"]) {
    const headers = await signed(body, { id });
    assert.equal((await receiver.accept("POST", headers, bytes(body))).status, 200);
  }
  const handled = [];
  const worker = new Worker(store, ({ id }, context) => void handled.push([id, context.id]));
  while (await worker.once());
  assert.deepEqual(handled, [
    ["user_1", "msg_1"],
    ["user_1", "msg_2"],
  ]);
});

test(
  "a report or a function of the caller that fails does not end the request",
  deadline,
  async () => {
    const fail = () => {
      throw new Error("a bug");
    };
    const options = { secrets: SECRET, store: new MemoryStore(), onProblem: fail };
    const post = async (more, headers) => {
      const receiver = new Receiver({ ...options, ...more });
      return (await receiver.accept("POST", headers, bytes(event("evt_1")))).status;
    };
    assert.equal(await post({}, {}), 401);
    assert.equal(await post({ eventId: fail }, await signed(event("evt_1"))), 503);
  },
);

test("express: a body that was parsed before is a mistake of the setup", deadline, async () => {
  const problems = [];
  const onProblem = ({ message }) => problems.push(message);
  const send = await HANDLERS.express(
    new Receiver({ secrets: SECRET, store: new MemoryStore(), onProblem }),
  );
  const headers = { ...(await signed(event("evt_1"))), "Content-Type": "application/json" };
  const response = await send({ method: "POST", headers, body: event("evt_1") }, "/late");
  assert.equal(response.status, 500);
  assert.match(problems[0], /before express\.json/);
});

test("only a text is a type, and the id of a body comes once", deadline, async () => {
  const store = new MemoryStore();
  const types = [];
  const { put } = store;
  store.put = (event) => types.push(event.type) && put.call(store, event);
  const byDefault = new Receiver({ secrets: SECRET, store, maxBodyBytes: 20_000_000 });
  const own = new Receiver({ secrets: SECRET, store, eventId: ({ id }) => id });
  const object = '{"id":"evt_1","type":{"toString":1}}';
  const twice = '{"id":"evt_2","b":["id",{"id":"id"}],"i\\u0064" :"evt_3"}';
  const nestedTwice = '{"a":"\\"id\\":{","b":{"id":1,"id":2},"id":"evt_4","type":7}';
  const long = JSON.stringify({ id: "evt_5", text: "\n".repeat(5_000_000) });
  const cases = [
    [byDefault, timestamped(await signed(object)), object, 200],
    [byDefault, timestamped(await signed(twice)), twice, 400],
    [own, await signed(twice), twice, 400],
    [byDefault, await signed(twice, { id: "msg_1" }), twice, 200],
    [byDefault, timestamped(await signed(nestedTwice)), nestedTwice, 200],
    [byDefault, timestamped(await signed(long)), long, 200],
  ];
  for (const [receiver, headers, body, status] of cases) {
    const found = await receiver.accept("POST", headers, bytes(body));
    assert.equal(found.status, status, `${body.slice(0, 100)}: ${found.body}`);
  }
  assert.deepEqual(types, ["", "", "", ""]);
});

test("a body that is nested deeply is refused", deadline, async () => {
  const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore() });
  for (const depth of [100, 500_000]) {
    const body = nested(depth);
    const { status } = await receiver.accept("POST", await signed(body), body);
    assert.equal(status, depth === 100 ? 200 : 400);
  }
});

test("a header that comes twice, or a bad one beside a good one, verifies nothing", async () => {
  const body = event("evt_1");
  const good = await signed(body);
  const bad = await signed(body, { secrets: OTHER });
  const [ours, standard] = ["Restive-Signature", "webhook-signature"];
  const unsigned = Object.entries(good).filter(([name]) => /^webhook-(id|timestamp)/.test(name));
  const pairs = (...more) => [...unsigned, ...more];
  const joined = `${good[ours]}, ${good[ours]}`;
  // headers, families, expected reason
  const cases = [
    [[[ours, good[ours]], [ours, good[ours]]], undefined, "malformed"],
    [[[ours, good[ours]], ["restive-signature", bad[ours]]], undefined, "malformed"],
    [{ [ours]: [good[ours], good[ours]] }, undefined, "malformed"],
    [{ [ours]: joined }, undefined, "malformed"],
    [new Headers({ [ours]: joined }), undefined, "malformed"],
    [{ [ours]: joined.replaceAll(", t=", ",t=") }, undefined, "malformed"],
    [[...Object.entries(good), ["webhook-id", "evt_1"]], undefined, "malformed"],
    [[...Object.entries(good), [ours, good[ours]]], undefined, "malformed"],
    [pairs([standard, bad[standard]], [ours, good[ours]]), undefined, "no_match"],
    [{ [standard]: good[standard], [ours]: good[ours] }, undefined, "missing"],
    [{ ...good, "svix-signature": "v1,", [standard]: bad[standard] }, undefined, "no_match"],
    [{ ...good, [standard]: bad[standard] }, ["timestamped", "standard"], undefined],
    [[...Object.entries(good), ["x-other", "1"], ["x-other", "1"]], undefined, undefined],
    [{ "svix-signature": "v1,", [ours]: good[ours] }, ["timestamped"], undefined],
    [pairs([ours, good[ours]]), undefined, undefined],
  ];
  for (const [headers, families, reason] of cases) {
    const options = { secrets: SECRET, ...(families && { families }) };
    const found = await verify(headers, body, options).then(() => undefined, (error) => error);
    assert.equal(found?.reason, reason, `${JSON.stringify(headers)}: ${found}`);
  }
});

test("a store that fails or hangs makes the provider send again", deadline, async () => {
  const broken = Object.assign(new MemoryStore(), {
    put: async () => {
      throw new Error("/disk is full");
    },
  });
  const hanging = Object.assign(new MemoryStore(), { put: () => new Promise(() => undefined) });
  for (const store of [broken, hanging]) {
    const problems = [];
    const receiver = new Receiver({
      secrets: SECRET,
      store,
      onProblem: (one) => problems.push(one),
    });
    const began = Date.now();
    const answer = await receiver.accept("POST", await signed(event("e")), bytes(event("e")));
    assert.equal(answer.status, 503);
    assert.ok(Number(answer.headers["Retry-After"]) > 0);
    assert.ok(Date.now() - began < 5000 && !answer.body.includes("/disk"));
    assert.match(problems[0].message, /disk is full|did not answer/);
  }
});

test("only so many requests wait for a store that hangs", deadline, async () => {
  const waiting = [];
  const put = () => new Promise((resolve) => waiting.push(resolve));
  const problems = [];
  const receiver = new Receiver({
    secrets: SECRET,
    store: Object.assign(new MemoryStore(), { put }),
    onProblem: ({ message }) => problems.push(message),
  });
  const headers = await signed(event("e"));
  const send = (handler) =>
    handler(new Request("http://receiver/hook", { method: "POST", headers, body: event("e") }));
  const handler = fetchHandler(receiver);
  const first = Array.from({ length: MAX_WAITING }, () => send(handler));
  await eventually(() => waiting.length === MAX_WAITING, "as many as may wait");
  const began = Date.now();
  const refused = await send(handler);
  assert.equal(refused.status, 503);
  assert.ok(Number(refused.headers.get("Retry-After")) > 0 && Date.now() - began < 2000);
  assert.match(problems[0], /wait for the store/);
  // Also after their answers: the store still has them.
  for (const one of await Promise.all(first)) assert.equal(one.status, 503);
  assert.equal((await send(handler)).status, 503);
  assert.equal(waiting.length, MAX_WAITING);
  for (const resolve of waiting.splice(0)) resolve("stored");
  const answer = send(handler);
  await eventually(() => waiting.length === 1, "the next one");
  waiting[0]("stored");
  assert.equal((await answer).status, 200);
});

test("a connection that breaks within the body stores nothing", deadline, async () => {
  const store = new MemoryStore();
  const problems = [];
  const onProblem = ({ code }) => problems.push(code);
  const port = await listen(nodeHandler(new Receiver({ secrets: SECRET, store, onProblem })));
  const socket = connect(port, "127.0.0.1");
  socket.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", () =>
    socket.destroy(),
  );
  await eventually(() => problems.includes("body_incomplete"), "the refusal");
  assert.equal((await store.counts()).pending, 0);
});

test("libraries of others agree with us, both ways", deadline, async () => {
  const body = event("evt_1", { title: "Gödel – 音" });
  const Stripe = library("stripe");
  const stripe = new Stripe("sk_test_none");
  const headers = await sign(body, { secrets: [OTHER, SECRET], id: "evt_1" });
  for (const secret of [SECRET, OTHER]) {
    stripe.webhooks.constructEvent(body, headers["Restive-Signature"], secret);
    for (const name of ["standardwebhooks", "svix"])
      new (library(name).Webhook)(secret).verify(body, headers);
  }
  const theirs = {
    "Stripe-Signature": stripe.webhooks.generateTestHeaderString({ payload: body, secret: SECRET }),
  };
  assert.equal((await verify(theirs, body, { secrets: SECRET })).family, "timestamped");
  for (const [name, prefix] of [
    ["standardwebhooks", "webhook"],
    ["svix", "svix"],
  ]) {
    const at = new Date();
    const signature = new (library(name).Webhook)(SECRET).sign("evt_1", at, body);
    const sent = {
      [`${prefix}-id`]: "evt_1",
      [`${prefix}-signature`]: signature,
      [`${prefix}-timestamp`]: String(Math.floor(at.getTime() / 1000)),
    };
    assert.equal((await verify(sent, body, { secrets: [OTHER, SECRET] })).family, "standard");
  }
});

for (const [kind, make] of Object.entries(STORES)) {
  test(`${kind} store: puts, claims, completes, fails, retries and prunes`, deadline, async () => {
    const store = await make();
    const events = [newEvent("a"), newEvent("a"), newEvent("a", "x"), newEvent("b")];
    const results = await Promise.all(events.map((one) => store.put(one)));
    assert.deepEqual(results, ["stored", "known", "different", "stored"]);
    const first = await store.claim(1000, 500);
    const body = '{"id":"a"}';
    assert.deepEqual(first, { id: "a", type: "t", body, attempt: 1, stale: false });
    assert.equal((await store.claim(1000, 500)).id, "b");
    assert.equal(await store.claim(1400, 500), undefined);
    assert.equal((await store.claim(1500, 500)).attempt, 2, "the lease has ended");
    await store.fail("a", "no", 3000);
    assert.equal(await store.nextDue(), 1500);
    await store.complete("b");
    assert.equal(await store.nextDue(), 3000);
    assert.equal(await store.claim(2999, 500), undefined);
    assert.equal((await store.claim(3000, 500)).attempt, 3);
    await store.fail("a", "never", undefined);
    assert.deepEqual(await store.dead(10), [{ id: "a", type: "t", attempts: 3, error: "never" }]);
    assert.deepEqual(await store.counts(), { pending: 0, done: 1, dead: 1 });
    assert.deepEqual(
      [await store.retry("a"), await store.retry("a"), await store.retry("x")],
      [true, false, false],
    );
    assert.equal((await store.claim(5000, 500)).attempt, 1);
    assert.equal(await store.prune(Date.now() + 1000), 1);
    assert.equal(await store.put(newEvent("b")), "stored");
    await store.setSetting("n", "1");
    await store.setSetting("n", "2");
    assert.deepEqual([await store.setting("n"), await store.setting("m")], ["2", undefined]);
  });

  test(`${kind} store: reconciliation queues only what is missing`, deadline, async () => {
    const store = await make();
    const events = ["a", "b", "c"].map((id) => ({
      id,
      type: "book.created",
      pending_webhooks: 1,
      created: now(),
    }));
    events.push({ id: "d", type: "webhook_endpoint.created", created: now() });
    const queries = [];
    const client = {
      async *list(_, query) {
        queries.push(query);
        yield* events;
      },
    };
    const receiver = new Receiver({ secrets: SECRET, store });
    const body = JSON.stringify({ ...events[1], pending_webhooks: 0 });
    await receiver.accept("POST", await signed(body, { id: "b" }), bytes(body));
    assert.equal(await reconcile({ client, store }), 2);
    assert.equal(await reconcile({ client, store }), 0);
    // The endpoint may receive another version of the event than the list shows.
    assert.equal(await store.put(newEvent("a", "another version")), "known");
    assert.ok(queries[1].min_created > queries[0].min_created + 86_400);
    const broken = {
      async *list() {
        yield events[0];
        throw new Error("cut");
      },
    };
    const before = await store.setting("reconciled_until");
    await assert.rejects(reconcile({ client: broken, store }), /cut/);
    assert.equal(await store.setting("reconciled_until"), before);
  });

  test(`${kind} store: an event from the future skips no other one`, deadline, async () => {
    const store = await make();
    const own = { type: "book.created" };
    const events = [{ id: "a", ...own, created: now() - 5 }, { id: "b", ...own, created: 4e9 }];
    const queries = [];
    const client = {
      async *list(_, query) {
        queries.push(query);
        yield* events;
      },
    };
    assert.equal(await reconcile({ client, store }), 2, "both are queued");
    assert.equal(await store.setting("reconciled_until"), String(events[0].created));
    // As an earlier release may have stored it.
    await store.setSetting("reconciled_until", "4000000000");
    await reconcile({ client, store });
    const begin = now() - 3 * 86_400;
    assert.ok(Math.abs(queries[1].min_created - begin) < 60, "it looks as far back as at first");
    // A clock that was set back a little: the position is right.
    await store.setSetting("reconciled_until", String(now() + 200));
    await reconcile({ client, store });
    assert.ok(Math.abs(queries[2].min_created - now() + 300) < 60, "it goes on");
    assert.ok(Number(await store.setting("reconciled_until")) <= now());
  });
}

for (const kind of Object.keys(STORES).filter((kind) => kind !== "memory")) {
  test(`${kind} store: what was stored survives the process`, deadline, async () => {
    const place = folder();
    const store = await STORES[kind](place);
    for (const id of ["a", "b", "c"]) await store.put(newEvent(id));
    const taken = await store.claim(Date.now(), 60_000);
    await store.complete("b");
    await store.setSetting("n", "1");
    await store.close?.();
    const again = await STORES[kind](place);
    assert.deepEqual(await again.counts(), { pending: 2, done: 1, dead: 0 });
    assert.equal(await again.put(newEvent("b")), "known");
    assert.equal(await again.setting("n"), "1");
    const retaken = await again.claim(Date.now(), 60_000);
    assert.deepEqual([retaken.id, retaken.attempt], [taken.id, 2], "it was in progress");
    await again.close?.();
  });
}

for (const kind of Object.keys(STORES).filter((kind) => kind !== "memory")) {
  test(`${kind} store: prune counts the time in which it is open`, deadline, async () => {
    const place = folder();
    const old = () => Date.now() - 40 * 86_400_000;
    // In each life: days by which the clock is wrong at the start, and later; days that pass; and
    // what is removed then.
    for (const [life, [start, end, passed, removed]] of [
      [0, 0, 0, 0],
      [0, 41, 0, 0],
      [-41, 0, 0, 0],
      [0, -41, 0, 0],
      [41, -41, 0, 0],
      [0, 0, 30, 0],
      [0, 0, 30, 6],
      [0, 0, 0, 0],
    ].entries()) {
      const store = await ahead(start, 0, () => STORES[kind](place));
      await ahead(end, 0, () => store.put(newEvent(`e${life}`)));
      await store.complete(`e${life}`);
      await ahead(end, passed, async () => {
        assert.equal(await store.prune(old()), removed, `life ${life}`);
        // As a worker does, so the time is stored.
        await store.claim(Date.now(), 60_000);
        await store.close?.();
      });
    }
  });
}

for (const kind of Object.keys(STORES)) {
  test(`${kind} store: a clock that was ahead delays no retry`, deadline, async () => {
    const place = folder();
    // Days by which the clock is wrong when the store is opened, and when the handler fails.
    for (const [start, later] of [[0, 365], [365, 365], [0.5, 0.5], [-365, 0], [0, -365]]) {
      for (const isClosed of kind === "memory" ? [false] : [false, true]) {
        const id = `${start} ${later} ${isClosed}`;
        let store = await ahead(start, 0, () => STORES[kind](place));
        await store.put(newEvent(id));
        let calls = 0;
        const options = { retries: [30, 60_000] };
        const fail = () => {
          calls += 1;
          if (calls <= (isClosed ? 2 : 1)) throw new Error("no");
        };
        let worker = new Worker(store, fail, options);
        await ahead(later, 0, async () => assert.equal(await worker.once(), true, id));
        if (isClosed) {
          await eventually(() => worker.once(), `the second attempt, ${id}`, 3_000);
          await store.close?.();
          store = await STORES[kind](place);
          worker = new Worker(store, fail, options);
          // Due in a minute, or at once.
          const due = (await store.nextDue()) - store.now();
          assert.ok(due <= 60_000, `${id}: due in ${due} ms`);
          await store.complete(id);
          await store.close?.();
        } else {
          await eventually(() => worker.once(), `the retry, ${id}`, 3_000);
          await store.close?.();
        }
        assert.equal(calls, 2);
      }
    }
  });

  test(`${kind} store: what is no event stops no reconciliation`, deadline, async () => {
    const store = await STORES[kind]();
    const wrong = [{ id: 5, type: "a.b", created: now() }, null, 7, {}];
    for (const id of ["\ud800", "", "x".repeat(256)]) wrong.push({ id, type: "a.b" });
    const right = [{ id: "a", type: 5 }, { id: "b", type: "a.b", created: "x" }];
    right.push({ id: "c", type: "a.b", created: now() - 5 });
    const client = {
      async *list() {
        yield* wrong;
        yield* right;
      },
    };
    const skipped = [];
    const onSkipped = (entry) => skipped.push(entry);
    assert.equal(await reconcile({ client, store, onSkipped }), 3);
    assert.deepEqual(skipped, wrong);
    assert.equal(await reconcile({ client, store }), 0);
    assert.equal(await store.setting("reconciled_until"), String(right[2].created));
    await store.close?.();
  });
}

test("reconciliation without types queues what webhooks would have brought", deadline, async () => {
  const own = ["webhook_endpoint.created", "replay.cancelled", "erasure.created", "ping"];
  const all = ["book.created", ...own, "pinged.created"];
  const sent = ["book.created", "pinged.created"];
  const queries = [];
  const client = {
    async *list(_, query) {
      queries.push(query);
      yield* all.map((type) => ({ id: `${queries.length} ${type}`, type }));
    },
  };
  for (const [types, wanted] of [
    [undefined, sent],
    [[], sent],
    [["*"], sent],
    [["book.*", "*"], sent],
    [["*", "ping", "replay.*"], ["book.created", own[1], "ping", "pinged.created"]],
  ]) {
    const store = new MemoryStore();
    assert.equal(await reconcile({ client, store, ...(types && { types }) }), wanted.length);
    assert.equal(queries.at(-1).type, undefined);
    const found = [];
    const worker = new Worker(store, ({ type }) => void found.push(type));
    while (await worker.once());
    assert.deepEqual(found, wanted, String(types));
  }
});

if (sqlite) {
  test("sqlite store: processes that share it have the same clock", deadline, async () => {
    const db = new sqlite.DatabaseSync(":memory:");
    const one = new SqliteStore(db, { shared: true });
    const other = new SqliteStore(db, { shared: true });
    for (const id of ["a", "b"]) await one.put(newEvent(id));
    await ahead(365, 0, async () => {
      await one.claim(one.now(), 60_000);
      await one.fail("a", "no", one.now() + 1_000);
      await one.claim(one.now(), 60_000);
    });
    // The first look limits the times.
    assert.equal(await other.claim(other.now(), 60_000), undefined);
    assert.equal((await other.claim(other.now(), 60_000)).id, "a");
    assert.ok((await other.nextDue()) <= other.now() + 60_000, "the lease of the other ends");
  });

  test("sqlite store: a long delay of a worker outlives the process", deadline, async () => {
    const db = new sqlite.DatabaseSync(":memory:");
    const day = 86_400_000;
    const store = new SqliteStore(db);
    await store.put(newEvent("a"));
    await store.fail("a", "no", store.now() + 3 * day);
    const again = new SqliteStore(db);
    assert.ok((await again.nextDue()) > again.now() + 2 * day);
  });

  test("sqlite store: times of an earlier release are limited to now", deadline, async () => {
    const db = new sqlite.DatabaseSync(":memory:");
    const earlier = new SqliteStore(db);
    await earlier.put(newEvent("a"));
    await earlier.complete("a");
    db.exec("DELETE FROM restive_settings; UPDATE restive_inbox SET received_at = 1e14");
    const store = new SqliteStore(db);
    const other = new SqliteStore(db, { shared: true });
    const prune = (days) => ahead(0, days, () => store.prune(Date.now() - 40 * 86_400_000));
    assert.equal(await prune(39), 0);
    // The other process knows the time of the first one.
    await other.put(newEvent("b"));
    await other.complete("b");
    assert.equal(await prune(41), 1, "only the first one is old");
  });
}

if (sqlite) {
  test("applyOnce: an effect happens once, and not at all if it fails", deadline, async () => {
    const db = new sqlite.DatabaseSync(":memory:");
    db.exec("CREATE TABLE effects (id TEXT)");
    const effect = (id) => (db) =>
      db.prepare("INSERT INTO effects VALUES (?)").run(id) && undefined;
    const count = () => db.prepare("SELECT count(*) AS n FROM effects").get().n;
    assert.deepEqual(
      [applyOnce(db, "a", effect("a")), applyOnce(db, "a", effect("a"))],
      [true, false],
    );
    const failing = (db) => {
      effect("b")(db);
      throw new Error("no");
    };
    assert.throws(() => applyOnce(db, "b", failing), /no/);
    assert.equal(count(), 1);
    assert.throws(() => applyOnce(db, "b", async () => undefined), TypeError);
    assert.equal(applyOnce(db, "b", effect("b")), true);
    assert.equal(count(), 2);
  });
}
