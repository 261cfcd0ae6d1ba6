// The worker: attempts, time limits, and results that the store does not take.

import assert from "node:assert/strict";
import test from "node:test";

import { MemoryStore, Worker } from "restive-client/receiver";

import { eventually, newEvent } from "./harness.mjs";
import { STORES, ahead } from "./stores.mjs";

const deadline = { timeout: 30_000 };

for (const kind of Object.keys(STORES)) {
  test(
    `${kind} store: handlers that crash, hang or reject are tried again, then dead`,
    deadline,
    async () => {
      const store = await STORES[kind]();
      for (const id of ["ok", "throws", "rejects", "hangs"]) await store.put(newEvent(id));
      const calls = {};
      const handler = ({ id }) => {
        calls[id] = (calls[id] ?? 0) + 1;
        if (id === "throws") throw new Error("thrown");
        if (id === "rejects") return Promise.reject(new Error("rejected"));
        if (id === "hangs" && calls[id] === 1) return new Promise(() => undefined);
        return undefined;
      };
      const dead = [];
      const onError = (_, event, isDead) => isDead && dead.push(event.id);
      const limits = { retries: [10, 10], timeout: 100, grace: 50 };
      const options = { ...limits, concurrency: 2, onError };
      const worker = new Worker(store, handler, options).start();
      await eventually(async () => (await store.counts()).pending === 0, "all are done or dead");
      await worker.stop();
      assert.deepEqual(calls, { ok: 1, throws: 3, rejects: 3, hangs: 2 });
      assert.deepEqual(dead.sort(), ["rejects", "throws"]);
      const errors = (await store.dead(10)).map(({ error }) => error).sort();
      assert.deepEqual(errors, ["rejected", "thrown"]);
    },
  );

  test(`${kind} store: a clock that steps handles no event twice at once`, deadline, async () => {
    const store = await STORES[kind]();
    // As a store of another kind, which has no clock.
    for (const now of [store.now, undefined]) {
      store.now = now;
      await store.put(newEvent(`a ${!now}`));
      let [running, most, calls, end] = [0, 0, 0, undefined];
      const ended = new Promise((resolve) => (end = resolve));
      const handler = async () => {
        calls += 1;
        most = Math.max(most, (running += 1));
        await ended;
        running -= 1;
      };
      const worker = new Worker(store, handler, { concurrency: 2 });
      const first = worker.once();
      await eventually(() => calls === 1, "the first call");
      await ahead(1 / 24, 0, async () => {
        const second = worker.once();
        await Promise.race([second, new Promise((resolve) => setTimeout(resolve, 200))]);
        end();
        await Promise.all([first, second]);
      });
      assert.deepEqual([calls, most], [1, 1]);
    }
  });
}

test("an event has 20 attempts, up to an hour apart", deadline, async () => {
  const store = new MemoryStore();
  let time = 1_000_000;
  store.now = () => time;
  await store.put(newEvent("a"));
  const times = [];
  const fail = () => {
    times.push(time);
    throw new Error("no");
  };
  const worker = new Worker(store, fail);
  while (await worker.once()) time = (await store.nextDue()) ?? time;
  const waits = times.slice(1).map((at, index) => (at - times[index]) / 1_000);
  const doubled = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
  assert.deepEqual(waits, [...doubled, ...Array(7).fill(3600)]);
  assert.equal((await store.dead(1))[0].attempts, 20);
});

test("a result that the store does not take at once is written again", deadline, async () => {
  const store = new MemoryStore();
  await store.put(newEvent("a"));
  let fails = 1;
  const { complete } = store;
  store.complete = async (id) => {
    if (fails-- > 0) throw new Error("the disk is full");
    return complete.call(store, id);
  };
  const errors = [];
  let calls = 0;
  const onError = (error) => errors.push(error.message);
  const worker = new Worker(store, () => void (calls += 1), { onError }).start();
  await eventually(async () => (await store.counts()).done === 1, "it is done");
  await worker.stop();
  assert.deepEqual([calls, errors], [1, ["the disk is full"]]);
});

test("a failure that the store does not take at once is written again", deadline, async () => {
  const store = new MemoryStore();
  await store.put(newEvent("a"));
  const { fail } = store;
  const times = [];
  store.fail = async (id, error, retryAt) => {
    times.push(retryAt);
    if (times.length === 1) throw new Error("the database is locked");
    return fail.call(store, id, error, retryAt);
  };
  const errors = [];
  const onError = ({ message }, { id, attempt }, dead) => errors.push([message, id, attempt, dead]);
  const handler = () => {
    throw new Error("no");
  };
  const worker = new Worker(store, handler, { onError, retries: [3_600_000] }).start();
  await eventually(() => times.length === 2, "it is written again");
  await worker.stop();
  assert.deepEqual(errors, [
    ["no", "a", 1, false],
    ["the database is locked", "a", 1, false],
  ]);
  assert.equal(times[0], times[1], "its delay begins when it fails");
  assert.equal(await store.nextDue(), times[0], "it is not leased any more");
});

test("a text that the store never takes keeps no other event waiting", deadline, async () => {
  const store = new MemoryStore();
  const odd = { half: new Error("half \ud800"), silent: Object.create(null), picky: new TypeError("no") };
  for (const id of [...Object.keys(odd), "good"]) await store.put(newEvent(id));
  const { fail } = store;
  store.fail = async (id, error, retryAt) => {
    if (error === "no") throw new Error("this text is not taken");
    return fail.call(store, id, error, retryAt);
  };
  const handler = ({ id }) => {
    if (odd[id]) throw odd[id];
  };
  const worker = new Worker(store, handler, { onError: () => undefined, retries: [] }).start();
  await eventually(async () => (await store.counts()).pending === 0, "the end of the backlog");
  await worker.stop();
  const dead = (await store.dead(9)).map(({ id, error }) => [id, error]);
  const shown = { half: "half \ufffd", silent: "object", picky: "TypeError" };
  assert.deepEqual(Object.fromEntries(dead), shown);
});

test("a failure is not written again after its lease", deadline, async () => {
  const store = new MemoryStore();
  await store.put(newEvent("a"));
  const clock = performance.now;
  let fails = 0;
  store.fail = async () => {
    fails += 1;
    const now = clock.call(performance);
    performance.now = () => now + 3_600_000;
    throw new Error("the disk is full");
  };
  const handler = () => {
    throw new Error("no");
  };
  try {
    assert.ok(await new Worker(store, handler, { onError: () => undefined }).once());
  } finally {
    performance.now = clock;
  }
  assert.equal(fails, 1);
});

test("timers and requests have their turn while a backlog lasts", deadline, async () => {
  const store = new MemoryStore();
  let [calls, fired] = [0, 0];
  const handler = async () => {
    calls += 1;
    // The backlog lasts until both have fired, or the worker has ignored them for too long.
    if (fired < 2 && calls < 200_000) await store.put(newEvent(`${calls}`));
  };
  await store.put(newEvent("first"));
  const worker = new Worker(store, handler, { concurrency: 2 }).start();
  setTimeout(() => (fired += 1));
  setImmediate(() => (fired += 1));
  await eventually(async () => (await store.counts()).pending === 0, "the end of the backlog");
  await worker.stop();
  assert.ok(calls < 200_000, "nothing else had a turn");
});

/** A handler that does not end before it is released, and what was seen of it. */
function slow() {
  const seen = { calls: 0, running: 0, most: 0, aborted: 0 };
  let release;
  const released = new Promise((resolve, reject) => (release = { resolve, reject }));
  const handler = async ({ id }, { signal }) => {
    if (id !== "slow") return;
    seen.calls += 1;
    seen.most = Math.max(seen.most, (seen.running += 1));
    signal.addEventListener("abort", () => (seen.aborted += 1));
    await released.finally(() => (seen.running -= 1));
  };
  return { handler, seen, ...release };
}

test("a handler over its time limit is not called again while it runs", deadline, async () => {
  for (const [end, state, error] of [
    ["resolve", "done", undefined],
    ["reject", "dead", "the handler did not end within 20 ms"],
  ]) {
    const store = new MemoryStore();
    const { handler, seen, ...release } = slow();
    await store.put(newEvent("slow"));
    const worker = new Worker(store, handler, { timeout: 20, retries: [] });
    const first = worker.once();
    await eventually(() => seen.aborted === 1, "the time limit");
    await store.put(newEvent("other"));
    assert.equal(await worker.once(), true, "another event is handled");
    assert.equal(await worker.once(), false, "the slow one is not due");
    assert.deepEqual([seen.running, (await store.counts()).pending], [1, 1]);
    release[end](new Error("aborted"));
    await first;
    assert.equal(await worker.once(), false);
    assert.deepEqual([seen.calls, seen.most], [1, 1]);
    assert.equal((await store.counts())[state], state === "done" ? 2 : 1);
    assert.equal((await store.dead(1))[0]?.error, error);
  }
});

test("a handler that ignores its time limit delays the next attempt", deadline, async () => {
  const store = new MemoryStore();
  const { handler, seen, resolve } = slow();
  await store.put(newEvent("slow"));
  const limits = { timeout: 20, grace: 200, retries: [0] };
  const worker = new Worker(store, handler, limits);
  const began = performance.now();
  worker.start();
  await eventually(() => seen.calls === 2, "the next attempt");
  assert.ok(performance.now() - began >= 215, "after the time limit and the grace");
  resolve();
  await worker.stop();
  assert.deepEqual(await store.counts(), { pending: 0, done: 1, dead: 0 });
});
