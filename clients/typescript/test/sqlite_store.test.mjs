// The store in SQLite: one process has it open, or all share it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";
import test from "node:test";

import { SqliteStore } from "restive-client/node";

import { changed, newEvent } from "./harness.mjs";
import { ahead, folder, sqlite } from "./stores.mjs";

const options = { timeout: 30_000, skip: !sqlite };
const database = (place) => new sqlite.DatabaseSync(join(place, "inbox.db"));
const refused = /inbox\.db is open already.*shared: true/;

/** A connection, and how SQLite runs such statements that were prepared since the last call. */
function traced() {
  const db = new sqlite.DatabaseSync(":memory:");
  let statements = [];
  const prepare = (sql) => {
    statements.push(sql);
    return db.prepare(sql);
  };
  const plans = (kind = /./) => {
    const chosen = statements.filter((sql) => kind.test(sql));
    const rows = chosen.flatMap((sql) => db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all());
    statements = [];
    return rows.map(({ detail }) => detail).join("\n");
  };
  const count = (kind) => statements.filter((sql) => kind.test(sql)).length;
  return { db: { exec: (sql) => db.exec(sql), prepare }, plans, count };
}

/** Another process that opens the store, takes an event and keeps it. Returns what it prints. */
async function other(place, shared) {
  const script = `
    import { DatabaseSync } from "node:sqlite";
    import { SqliteStore } from "restive-client/node";
    try {
      const db = new DatabaseSync(process.argv[1]);
      const store = new SqliteStore(db, { shared: ${shared} });
      console.log((await store.claim(store.now(), 3_600_000))?.id ?? "nothing");
      setInterval(() => store, 1_000);
    } catch (error) {
      console.log(error.message);
    }`;
  const flags = ["--input-type=module", "--eval", script, join(place, "inbox.db")];
  const child = spawn(process.execPath, flags, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  for await (const line of createInterface({ input: child.stdout })) {
    return { line, kill: () => child.kill("SIGKILL") && ended };
  }
  throw new Error("the process printed nothing");
}

test("sqlite store: a second process must share it", options, async () => {
  // whether the first one shares it, whether the second one does, whether it opens
  for (const [held, shared, opens] of [
    [false, false, false],
    [false, true, false],
    [true, false, false],
    [true, true, true],
  ]) {
    const place = folder();
    const store = new SqliteStore(database(place), { shared: held });
    await store.put(newEvent("a"));
    const second = await other(place, shared);
    if (opens) assert.equal(second.line, "a");
    else assert.match(second.line, refused);
    await second.kill();
    // It has taken back no lease of the first one, and the lock is still there.
    assert.equal(await store.put(newEvent("a")), "known");
    assert.throws(() => new SqliteStore(database(place), { shared: !held }), refused);
    await store.close();
  }
});

test("sqlite store: the lock ends with its process, or when it is closed", options, async () => {
  const place = folder();
  const first = new SqliteStore(database(place));
  await first.put(newEvent("a"));
  assert.throws(() => new SqliteStore(database(place)), refused);
  await first.close();
  await first.close();
  await assert.rejects(first.put(newEvent("b")), /is closed/);
  await assert.rejects(first.claim(Date.now(), 1_000), /is closed/);
  const killed = await other(place, false);
  assert.equal(killed.line, "a");
  assert.throws(() => new SqliteStore(database(place)), refused);
  await killed.kill();
  const store = new SqliteStore(database(place));
  assert.equal((await store.claim(store.now(), 1_000)).id, "a", "its event is due at once");
  assert.equal(statSync(join(place, "inbox.db.lock")).mode & 0o777, 0o600);
  await store.close();
});

test("sqlite store: an object that is no connection has no lock", options, async () => {
  const place = folder();
  const db = database(place);
  const own = { exec: (sql) => db.exec(sql), prepare: (sql) => db.prepare(sql) };
  const stores = [new SqliteStore(own), new SqliteStore(own)];
  await stores[0].put(newEvent("a"));
  assert.equal(await stores[1].put(newEvent("a")), "known");
  // As one in memory, which no other process sees.
  const memory = new sqlite.DatabaseSync(":memory:");
  assert.ok(new SqliteStore(memory) && new SqliteStore(memory));
});

test("sqlite store: a claim does not read the states of all resources", options, async () => {
  const { db, plans } = traced();
  const store = new SqliteStore(db);
  await store.put(newEvent("a"));
  plans();
  await store.claim(Date.now(), 1_000);
  const plan = plans();
  assert.match(plan, /SEARCH .*newest/);
  assert.doesNotMatch(plan, /SCAN .*newest/);
});

test("sqlite store: others work while many events are removed", options, async () => {
  const { db, plans } = traced();
  const store = new SqliteStore(db);
  for (let number = 0; number < 1_200; number += 1) {
    await store.put(changed(`${number}`, `${number}`, 1));
    await store.complete(`${number}`);
  }
  plans();
  const removed = store.prune(Date.now() + 1_000);
  const { done } = await store.counts();
  assert.ok(done > 0 && done < 1_200, `${done} are left`);
  assert.equal(await removed, 1_200);
  assert.deepEqual(db.prepare("SELECT * FROM restive_newest").all(), []);
  assert.doesNotMatch(plans(/DELETE/), /SCAN/);
});

test("sqlite store: an idle worker that shares it writes nothing", options, async () => {
  const { db, plans, count } = traced();
  const store = new SqliteStore(db, { shared: true });
  for (let number = 0; number < 20; number += 1) {
    await store.put(newEvent(`${number}`));
    await store.fail(`${number}`, "no", Date.now() + 600_000);
  }
  /** A claim when so many seconds have passed. */
  const claim = (seconds) => ahead(0, seconds / 86_400, () => store.claim(Date.now(), 60_000));
  plans();
  for (const seconds of [0, 1, 2, 59, 61, 62]) assert.equal(await claim(seconds), undefined);
  assert.deepEqual([count(/SET due_at/), count(/SELECT EXISTS/)], [0, 2]);
  assert.doesNotMatch(plans(), /SCAN restive_inbox(?! USING)/);
  const due = Date.now() + 365 * 86_400_000;
  db.prepare("UPDATE restive_inbox SET due_at = ? WHERE id = '7'").run(due);
  assert.equal(await claim(123), undefined);
  assert.equal((await claim(123)).id, "7", "the clock was ahead");
});
