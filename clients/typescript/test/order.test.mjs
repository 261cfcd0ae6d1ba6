// The order of events about one resource: one at a time, and old states are marked.

import assert from "node:assert/strict";
import test from "node:test";

import { SqliteStore } from "restive-client/node";
import { MemoryStore, Worker } from "restive-client/receiver";

import { changed, eventually, newEvent } from "./harness.mjs";
import { STORES, folder, sqlite } from "./stores.mjs";

const deadline = { timeout: 30_000 };

for (const kind of Object.keys(STORES)) {
  test(`${kind} store: events of a resource are handed out one at a time`, deadline, async () => {
    const store = await STORES[kind]();
    for (const one of [changed("a1", "a", 1), changed("a2", "a", 2), changed("b1", "b", 1)]) {
      await store.put(one);
    }
    await store.put({ ...newEvent("c"), body: '{"id":"c","data":{"object":{"id":"a"}}}' });
    const claim = async (at) => {
      const found = await store.claim(at, 500);
      return found && [found.id, found.stale];
    };
    assert.deepEqual(await claim(1000), ["a1", false]);
    assert.deepEqual(await claim(1000), ["b1", false], "the other event of `a` waits");
    assert.deepEqual(await claim(1000), ["c", false], "an object of another type");
    assert.equal(await claim(1000), undefined);
    assert.equal(await store.nextDue(), 1500, "until the lease ends");
    for (const id of ["b1", "c"]) await store.complete(id);
    await store.fail("a1", "no", 1300);
    assert.deepEqual(await claim(1100), ["a2", false], "a retry that is not due blocks nothing");
    assert.equal(await claim(1300), undefined);
    await store.complete("a2");
    assert.deepEqual(await claim(1300), ["a1", true], "it would overwrite newer state");
    assert.equal(await claim(1300), undefined);
    // A lease ends with its process.
    assert.deepEqual(await claim(1800), ["a1", true]);
    await store.complete("a1");
    await store.put(changed("a3", "a", 2, { action: "deleted" }));
    await store.put(changed("a4", "a", 1));
    assert.deepEqual(await claim(1800), ["a3", false], "the revision is equal");
    await store.complete("a3");
    assert.deepEqual(await claim(1800), ["a4", true], "the stale one has changed nothing");
    await store.fail("a4", "never", undefined);
    await store.retry("a4");
    assert.deepEqual(await claim(1900), ["a4", true]);
    await store.close?.();
  });

  test(`${kind} store: a long queue of a resource keeps no other waiting`, deadline, async () => {
    const store = await STORES[kind]();
    await Promise.all(
      Array.from({ length: 2_500 }, (_, number) => store.put(changed(`hot${number}`, "hot", 1))),
    );
    const claim = async () => (await store.claim(Date.now(), 60_000))?.id;
    assert.equal(await claim(), "hot0");
    await store.put(changed("other", "a", 1));
    assert.ok((await store.nextDue()) <= Date.now());
    assert.equal(await claim(), "other");
    assert.equal(await claim(), undefined);
    await store.complete("hot0");
    assert.equal(await claim(), "hot1");
    await store.close?.();
  });

  test(`${kind} store: new and failed events wait for each other in turn`, deadline, async () => {
    const store = await STORES[kind]();
    const now = store.now() + 1_000;
    /** Claims until that event has its turn. */
    const untilTurn = async (id, other) => {
      for (let count = 1; count < 20; count += 1) {
        const claimed = await store.claim(now, 60_000);
        if (claimed.id === id) return await store.complete(id);
        await other(claimed.id, count);
      }
      assert.fail(`${id} is kept waiting`);
    };
    await store.put(newEvent("failed"));
    await store.fail((await store.claim(now, 60_000)).id, "no", now);
    for (const id of ["a", "b", "c"]) await store.put(newEvent(id));
    await untilTurn("failed", async (id, count) => {
      await store.complete(id);
      for (const name of ["later", "later still"]) await store.put(newEvent(`${name} ${count}`));
    });
    for (let found; (found = await store.claim(now, 60_000)); ) await store.complete(found.id);
    for (const id of ["d", "e", "f"]) {
      await store.put(newEvent(id));
      await store.fail(id, "no", now);
    }
    await store.put(newEvent("new"));
    await untilTurn("new", (id) => store.fail(id, "no", now));
    await store.put(newEvent("ahead"));
    assert.equal((await store.claim(1, 60_000)).id, "ahead", "new ones are due by every clock");
    await store.close?.();
  });

  test(`${kind} store: an old retry is marked or skipped`, deadline, async () => {
    for (const stale of ["deliver", "skip"]) {
      const store = await STORES[kind]();
      for (let number = 1; number <= 5; number += 1) {
        for (const id of ["a", "b"]) await store.put(changed(`${id}${number}`, id, number));
      }
      const [running, seen] = [new Set(), []];
      const handler = async (event, context) => {
        const { id, version } = event.data.object;
        assert.ok(!running.has(id), "one at a time");
        running.add(id);
        // Others would begin in the meantime.
        await new Promise((resolve) => setImmediate(resolve));
        running.delete(id);
        if (context.id === "a1" && context.attempt === 1) throw new Error("no");
        if (id === "a") seen.push([version, context.stale]);
      };
      const worker = new Worker(store, handler, { concurrency: 4, retries: [200], stale }).start();
      await eventually(async () => (await store.counts()).done === 10, "all are done");
      await worker.stop();
      const newer = [2, 3, 4, 5].map((version) => [version, false]);
      assert.deepEqual(seen, stale === "skip" ? newer : [...newer, [1, true]]);
      await store.close?.();
    }
    const wrong = { stale: "Skip" };
    assert.throws(() => new Worker(new MemoryStore(), () => undefined, wrong), TypeError);
  });
}

for (const kind of Object.keys(STORES).filter((kind) => kind !== "sqlite")) {
  test(`${kind} store: an idle worker does not walk over what waits`, deadline, async () => {
    const store = await STORES[kind]();
    const due = store.now() + 600_000;
    for (let number = 0; number < 100; number += 1) {
      await store.put(changed(`${number}`, `${number % 10}`, 1));
      await store.fail(`${number}`, "no", due + number);
    }
    let reads = 0;
    const { entries } = store;
    const { get } = entries;
    entries.get = (id) => ((reads += 1), get.call(entries, id));
    const claim = async (at) => (await store.claim(at, 1_000))?.id;
    for (let count = 0; count < 20; count += 1) {
      assert.equal(await claim(due - 1), undefined);
      assert.equal(await store.nextDue(), due);
    }
    assert.ok(reads <= 100, `${reads} reads`);
    // What changes is seen at once.
    assert.equal(await claim(due), "0", "it is due");
    assert.equal(await claim(due), undefined);
    assert.equal(await store.nextDue(), due + 1);
    await store.put(newEvent("new"));
    assert.equal(await store.nextDue(), 0);
    assert.equal(await claim(due), "new");
    assert.equal(await claim(due), undefined);
    await store.fail("new", "no", due - 1);
    assert.equal(await store.nextDue(), due - 1);
    assert.equal(await claim(due), "new");
    await store.fail("new", "never", undefined);
    assert.equal(await claim(due), undefined);
    await store.retry("new");
    assert.equal(await claim(due), "new");
    assert.equal(await claim(due + 10), "1");
    assert.equal(await claim(due + 999), "2", "the resource of the first is busy");
    await store.complete("0");
    assert.equal(await store.nextDue(), due + 3);
    await store.close?.();
  });
}

for (const kind of Object.keys(STORES).filter((kind) => kind !== "memory")) {
  test(`${kind} store: the newest state of a resource survives the process`, deadline, async () => {
    const place = folder();
    let store = await STORES[kind](place);
    for (const one of [changed("a2", "a", 2), changed("a3", "a", 3), changed("b2", "b", 2)]) {
      await store.put(one);
    }
    for (const id of ["a3", "a2"]) await store.complete(id);
    // Twice: a journal is rewritten when it is opened.
    for (const life of [1, 2]) {
      await store.close?.();
      store = await STORES[kind](place);
      await store.put(changed(`a${life}`, "a", life));
    }
    const claimed = [];
    for (let found; (found = await store.claim(Date.now(), 60_000)); ) {
      claimed.push([found.id, found.stale]);
      await store.complete(found.id);
    }
    assert.deepEqual(claimed, [["b2", false], ["a1", true]]);
    // With its event, the state is forgotten.
    assert.equal(await store.prune(Date.now() + 1_000), 4);
    await store.put(changed("a0", "a", 0));
    assert.equal((await store.claim(Date.now(), 60_000)).stale, false);
    await store.close?.();
  });
}

test("the revision of a resource is that of the kit", deadline, async () => {
  const time = (text) => ({ updated_at: text });
  // older, newer: members of the object, and of the event; whether they are comparable
  for (const [older, newer, isComparable = true] of [
    [[time("2026-11-01T00:00:00Z")], [time("2026-11-01T00:00:00.1Z")]],
    [
      [{ ...time("2026-11-01T00:00:00Z"), version: 9 }],
      [{ ...time("2026-11-02T00:00:00Z"), version: 1 }],
    ],
    [[{ version: 9 }], [{ version: 10 }]],
    [[{ ...time("soon"), version: 9 }], [{ version: 10 }]],
    [[{ version: 9, updated: 7 }], [{ version: 10, updated: 1 }]],
    [[{ updated: 8 }, { sequence: 9 }], [{ updated: 1 }, { sequence: 10 }]],
    [[{ updated: 9 }, { created: 7 }], [{ updated: 10 }, { created: 1 }]],
    [[{ updated_at: 9 }], [{ updated: 10 }]],
    [[{}, { created: 9 }], [{}, { created: 10 }]],
    [[{ version: 9 }], [{ updated: 10 }], false],
    [[{ version: 9 }], [time("2026-11-01T00:00:00Z")], false],
    [[{ version: -1 }], [{ version: 10 }], false],
    [[{ version: "9" }], [{ version: 10 }], false],
    [[{ version: 9.5 }], [{ version: 10 }], false],
    [[{}], [{ version: 10 }], false],
  ]) {
    const store = new MemoryStore();
    for (const [id, [object, more]] of Object.entries({ newer, older, again: newer })) {
      const body = JSON.stringify({ id, ...more, data: { object: { id: "a", ...object } } });
      await store.put({ ...newEvent(id), body });
    }
    const stale = [];
    for (let found; (found = await store.claim(1, 1)); await store.complete(found.id)) {
      stale.push(found.stale);
    }
    assert.deepEqual(stale, [false, isComparable, false], JSON.stringify([older, newer]));
  }
});

if (sqlite) {
  test("sqlite store: a file of an earlier release opens", deadline, async () => {
    const db = new sqlite.DatabaseSync(":memory:");
    db.exec(`CREATE TABLE restive_inbox (
      number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT,
      fingerprint TEXT NOT NULL, received_at INTEGER NOT NULL, state TEXT NOT NULL,
      attempts INTEGER NOT NULL, due_at INTEGER NOT NULL, leased_until INTEGER NOT NULL,
      error TEXT);
      CREATE TABLE restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)`);
    const insert = db.prepare(
      "INSERT INTO restive_inbox VALUES (NULL, ?, 't', ?, '', 1, ?, 0, 0, 0, NULL)",
    );
    insert.run("old", null, "done");
    insert.run("broken", "no JSON", "pending");
    for (const version of [2, 1]) {
      insert.run(`a${version}`, changed("", "a", version).body, "pending");
    }
    const store = new SqliteStore(db);
    assert.equal(await store.put(newEvent("old")), "known");
    const claimed = [];
    for (let found; (found = await store.claim(Date.now(), 60_000)); ) {
      claimed.push([found.id, found.stale]);
      if (found.id === "a2") assert.equal(await store.claim(Date.now(), 60_000), undefined);
      await store.complete(found.id);
    }
    assert.deepEqual(claimed, [["broken", false], ["a2", false], ["a1", true]]);
  });
}
