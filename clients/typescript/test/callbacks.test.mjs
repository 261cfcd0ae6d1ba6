// Functions of the caller that fail, at once or later. A rejection that nobody handles ends the
// process, and fails the test here.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";

import { Client } from "restive-client";
import { nodeHandler } from "restive-client/node";
import {
  MemoryStore,
  Receiver,
  Worker,
  fetchHandler,
  reconcile,
  reconcileEvery,
} from "restive-client/receiver";

import { eventually, fake, newEvent, stream } from "./harness.mjs";

const SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const deadline = { timeout: 30_000 };
const turn = () => new Promise((resolve) => setTimeout(resolve, 20));

/** Functions that fail, and count their calls. */
function failing() {
  const found = { calls: 0 };
  found.throws = () => {
    found.calls += 1;
    throw new Error("a bug");
  };
  found.rejects = async () => found.throws();
  found.rejectsLater = () => turn().then(found.throws);
  return found;
}
const KINDS = ["throws", "rejects", "rejectsLater"];

test("onProblem that fails ends neither the request nor the process", deadline, async () => {
  for (const kind of KINDS) {
    const found = failing();
    const options = { secrets: SECRET, store: new MemoryStore(), onProblem: found[kind] };
    const receiver = new Receiver(options);
    assert.equal((await receiver.accept("POST", {}, new Uint8Array())).status, 401);
    await eventually(() => found.calls === 1, kind);
  }
  await turn();
});

test("onError that fails ends neither the worker nor the process", deadline, async () => {
  for (const kind of KINDS) {
    const found = failing();
    const store = new MemoryStore();
    for (const id of ["a", "b"]) await store.put(newEvent(id));
    const handler = ({ id }) => {
      if (id === "a") throw new Error("no");
    };
    const worker = new Worker(store, handler, { retries: [], onError: found[kind] }).start();
    await eventually(async () => (await store.counts()).done === 1, "the other event");
    await eventually(() => found.calls === 1, kind);
    await worker.stop();
  }
  await turn();
});

test("a store that throws at once ends neither the worker nor the process", deadline, async () => {
  const store = new MemoryStore();
  const errors = [];
  store.nextDue = () => {
    throw new Error("no clock");
  };
  let handled = 0;
  const onError = ({ message }) => errors.push(message);
  const worker = new Worker(store, () => void (handled += 1), { onError }).start();
  await eventually(() => errors.length === 1, "the error");
  await store.put(newEvent("a"));
  await eventually(() => handled === 1, "the event");
  await worker.stop();
  assert.equal(errors[0], "no clock");
});

test("onSkipped that fails stops no reconciliation", deadline, async () => {
  for (const kind of KINDS) {
    const found = failing();
    const client = {
      async *list() {
        yield null;
        yield { id: "a", type: "book.created" };
      },
    };
    const options = { client, store: new MemoryStore(), onSkipped: found[kind] };
    assert.equal(await reconcile(options), 1);
    await eventually(() => found.calls === 1, kind);
  }
  await turn();
});

test("onResult and onError that fail do not end reconcileEvery", deadline, async () => {
  for (const kind of KINDS) {
    const [results, errors] = [failing(), failing()];
    const end = new AbortController();
    let runs = 0;
    const client = {
      async *list() {
        runs += 1;
        if (runs % 2 === 0) throw new Error("cut");
      },
    };
    const store = new MemoryStore();
    const callbacks = { onResult: results[kind], onError: errors[kind] };
    const done = reconcileEvery(0.01, { client, store, signal: end.signal, ...callbacks });
    // An error of onResult goes to onError, too.
    await eventually(() => results.calls >= 2 && errors.calls >= 4, kind);
    end.abort();
    await done;
  }
  await turn();
});

test("onState that rejects does not end the process", deadline, async () => {
  const text = 'id: e.1\n\nevent: message\nid: e.2\ndata: {"text":"last"}\n\n';
  const { url, close } = await fake(stream(text, { end: false }));
  const found = failing();
  for await (const { data } of new Client({ url }).follow({ onState: found.rejects })) {
    assert.equal(data.text, "last");
    break;
  }
  close();
  assert.equal(found.calls, 2);
  await turn();
});

test("a request whose source is not known is refused, and ends no process", deadline, async () => {
  const store = new MemoryStore();
  const receiver = new Receiver({ secrets: SECRET, store, allow: () => true });
  // As if a proxy had set the header.
  const forwarded = (text) => ({ address: text.split(",")[0] });
  const ofNode = ({ headers }) => forwarded(headers["x-forwarded-for"]);
  const server = createServer(nodeHandler(receiver, ofNode));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  const url = `http://127.0.0.1:${server.address().port}/`;
  const ofFetch = ({ headers }) => forwarded(headers.get("x-forwarded-for"));
  const fetched = fetchHandler(receiver, ofFetch);
  for (const send of [fetch, (url, init) => fetched(new Request(url, init))]) {
    assert.equal((await send(url, { method: "POST" })).status, 403);
    const headers = { "X-Forwarded-For": "192.0.2.1" };
    assert.equal((await send(url, { method: "POST", headers })).status, 401);
  }
  server.close();
});
