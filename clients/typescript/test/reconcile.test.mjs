// Missed events are queued in the order in which they were created, whatever the order of the list.

import assert from "node:assert/strict";
import test from "node:test";

import { Client } from "restive-client";
import { MemoryStore, Worker, reconcile } from "restive-client/receiver";

import { KEY, Server } from "./harness.mjs";

const deadline = { timeout: 60_000 };
const now = () => Math.floor(Date.now() / 1000);

async function handled(store) {
  const found = [];
  const worker = new Worker(store, ({ type, data, id }) => {
    found.push([type, data?.object.id ?? id]);
  });
  while (await worker.once());
  return found;
}

test("a deleted record does not come back, also if a page fails", deadline, async () => {
  const server = await Server.start();
  const client = new Client({ url: server.url, key: KEY });
  const books = client.collection("/v1/books");
  const expected = [];
  // More than a page.
  for (let count = 0; count < 60; count += 1) {
    const { id } = await books.create({ title: `Book ${count}`, author: "Ann", price: 1 });
    expected.push(["book.created", id]);
    if (count % 2 === 0) {
      await books.update(id, { price: 2 });
      await books.delete(id);
      expected.push(["book.updated", id], ["book.deleted", id]);
    }
  }
  const store = new MemoryStore();
  let entries = 0;
  const cut = {
    async *list(...query) {
      for await (const entry of client.list(...query)) {
        entries += 1;
        if (entries > 110) throw new Error("cut");
        yield entry;
      }
    },
  };
  const types = ["book.*"];
  await assert.rejects(reconcile({ client: cut, store, types }), /cut/);
  assert.equal(await store.setting("reconciled_until"), undefined);
  const before = (await store.counts()).pending;
  assert.equal(await reconcile({ client, store, types }), expected.length - before);
  assert.equal(await reconcile({ client, store, types }), 0);
  assert.deepEqual(await handled(store), expected);
  await server.kill();
});

// As an API in the form of Stripe lists them, which has no `sort`.
test("a list with the newest first is turned around", deadline, async () => {
  const begin = now() - 1000;
  const event = (number, more) => ({ id: `e${number}`, created: begin + number, ...more });
  const oldest = Array.from({ length: 250 }, (_, number) => event(number, { type: "a.b" }));
  const odd = [null, { id: "none", type: "a.b" }];
  const half = "x".repeat(5 * 1024 * 1024);
  const large = Array.from({ length: 10 }, (_, number) => event(number, { type: "a.b", half }));
  const same = Array.from({ length: 5 }, (_, number) => event(number, { created: begin }));
  const ids = (list) => list.map(({ id }) => id);
  // the list, the expected ids
  for (const [list, wanted] of [
    [oldest, ids(oldest)],
    [oldest.slice().reverse(), ids(oldest)],
    [[...odd, ...oldest.slice().reverse()], [...ids(oldest), "none"]],
    [[...oldest, ...odd], [...ids(oldest), "none"]],
    // Of the same second: as they are listed.
    [same, ids(same)],
    [[...same, event(9)].reverse(), [...ids(same), "e9"]],
    // Too large for the memory: in parts.
    [large.slice().reverse(), ["e3", "e4", "e5", "e6", "e7", "e8", "e9", "e0", "e1", "e2"]],
    [large, ids(large)],
  ]) {
    const store = new MemoryStore();
    const queries = [];
    const client = {
      async *list(_, query) {
        queries.push(query);
        yield* list;
      },
    };
    assert.equal(await reconcile({ client, store }), wanted.length);
    assert.equal(queries[0].sort, "created");
    const found = await handled(store);
    assert.deepEqual(found.map(([, id]) => id), wanted);
    const newest = list.reduce((time, one) => Math.max(time, one?.created ?? 0), 0);
    assert.equal(await store.setting("reconciled_until"), String(newest));
  }
});

test("a list that breaks off moves no position", deadline, async () => {
  const begin = now() - 1000;
  for (const step of [1, -1]) {
    const client = {
      async *list() {
        for (const at of [0, 1, 2]) yield { id: `e${at}`, type: "a.b", created: begin + at * step };
        throw new Error("cut");
      },
    };
    const store = new MemoryStore();
    await store.setSetting("reconciled_until", String(begin - 500));
    await assert.rejects(reconcile({ client, store }), /cut/);
    assert.equal(await store.setting("reconciled_until"), String(begin - 500));
  }
});
