// The store in a file: it survives torn writes, full disks, missing file handles and wrong clocks,
// and one process has it open.

import assert from "node:assert/strict";
import {
  appendFileSync,
  copyFileSync,
  mkdtempSync,
  readFileSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { FileStore } from "restive-client/node";

const deadline = { timeout: 30_000 };
const folder = () => mkdtempSync(join(tmpdir(), "restive-inbox-"));
const open = (place) => FileStore.open(join(place, "inbox.journal"));
const put = (id, fingerprint = id) => ({
  id,
  type: "t",
  body: JSON.stringify({ id }),
  fingerprint,
  source: "webhook",
});

test("file store: a torn line is dropped, a damaged journal is refused", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  const store = await open(place);
  await store.put(put("a"));
  await assert.rejects(open(place), /belongs to process/);
  await store.close();
  appendFileSync(path, '{"o":"put","i":"b","t":"t","b"');
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 0, dead: 0 });
  assert.equal(await again.put(put("b")), "stored");
  await again.close();
  // A process that was killed, or a power cut, leaves a lock behind.
  for (const [number, content] of ["999999999 1", "", "released"].entries()) {
    writeFileSync(`${path}.lock.${number + 50}`, content);
    await (await open(place)).close();
  }
  const lines = readFileSync(path, "utf8").split("\n");
  writeFileSync(path, ["nonsense", ...lines].join("\n"));
  await assert.rejects(open(place), /inbox\.journal:1: not a line/);
});

test("file store: of several that open one journal, one succeeds", deadline, async () => {
  for (const stale of [undefined, "999999999 1"]) {
    const place = folder();
    if (stale) writeFileSync(join(place, "inbox.journal.lock.7"), stale);
    const opened = await Promise.allSettled(Array.from({ length: 8 }, () => open(place)));
    const held = opened.filter(({ status }) => status === "fulfilled");
    assert.equal(held.length, 1);
    for (const { reason } of opened) if (reason) assert.match(reason.message, /belongs to process/);
    await held[0].value.close();
  }
});

test("file store: a lock counts as long as its process may be running", deadline, async () => {
  const known = folder();
  const store = await open(known);
  const own = readFileSync(join(known, "inbox.journal.lock.1"), "utf8").split(" ");
  await store.close();
  const [pid, start, here, host] = own;
  const elsewhere = `${here}0`;
  const old = new Date(Date.now() - 31_000);
  const forbidden = () => () => {
    throw failure("EPERM");
  };
  const running = /belongs to process \d+, which is running/;
  const unseen = /in another container or on another machine \(.+\)\. If it has ended.*remove/;
  // content, time of the file, error
  const cases = [
    [[pid, start, here, host, "x"], old, running],
    [[pid, `${start}0`, here, host, "x"], undefined, undefined],
    [["999999999", start, elsewhere, host, "x"], undefined, unseen],
    [["999999999", start, elsewhere, host, "x"], old, undefined],
  ];
  for (const [content, time, error] of cases) {
    // As if the process were one of another user.
    for (const replacement of [(kill) => kill, forbidden]) {
      const place = folder();
      const path = join(place, "inbox.journal.lock.5");
      writeFileSync(path, content.join(" "));
      if (time) utimesSync(path, time, time);
      await replaced(process, "kill", replacement, async () => {
        if (error) await assert.rejects(open(place), error, content.join(" "));
        else await (await open(place)).close();
      });
    }
  }
});

test("file store: the time of the lock is renewed until it is closed", deadline, async () => {
  const place = folder();
  let timer, ended;
  const started = () => (renew, every) => (timer = { renew, every, unref() {} });
  const stopped = () => (one) => (ended = one);
  await replaced(globalThis, "setInterval", started, async () => {
    const store = await open(place);
    assert.ok(timer.every <= 10_000, "three times within the limit");
    const path = join(place, "inbox.journal.lock.1");
    utimesSync(path, 0, 0);
    timer.renew();
    const end = Date.now() + 10_000;
    while (statSync(path).mtimeMs < Date.now() - 10_000) {
      assert.ok(Date.now() < end, "it was not renewed");
      await new Promise((resolve) => setImmediate(resolve));
    }
    await replaced(globalThis, "clearInterval", stopped, () => store.close());
    assert.equal(ended, timer);
  });
});

/** Replaces a function of `node:fs/promises`, or of file handles, while the action runs. */
async function replaced(target, name, replacement, action) {
  const original = target[name];
  target[name] = replacement(original);
  syncBuiltinESMExports();
  try {
    await action();
  } finally {
    target[name] = original;
    syncBuiltinESMExports();
  }
}

const failure = (code) => Object.assign(new Error(code), { code });

async function prototypeOfHandles() {
  const handle = await promises.open(tmpdir(), "r");
  await handle.close();
  return Object.getPrototypeOf(handle);
}

test("file store: a rewrite without free file handles loses nothing", deadline, async () => {
  const place = folder();
  const store = await open(place);
  const body = JSON.stringify({ id: "x", text: "x".repeat(1_000_000) });
  // The new journal can be opened once, and nothing else.
  let free = 1;
  const failing =
    (open) =>
    async (path, ...rest) => {
      if (!String(path).endsWith(".new") || free-- <= 0) throw failure("EMFILE");
      return open(path, ...rest);
    };
  await replaced(promises, "open", failing, async () => {
    for (let number = 0; number < 36; number += 1) {
      await store.put({ ...put(`e${number}`), body });
      await store.complete(`e${number}`);
    }
    await store.put(put("last"));
  });
  // As a kill would leave it.
  const left = folder();
  copyFileSync(join(place, "inbox.journal"), join(left, "inbox.journal"));
  await store.close();
  const again = await open(left);
  assert.deepEqual(await again.counts(), { pending: 1, done: 36, dead: 0 });
  await again.close();
});

test("file store: a full disk loses no event and damages nothing", deadline, async () => {
  const handles = await prototypeOfHandles();
  const torn = (append) =>
    async function (bytes) {
      await append.call(this, bytes.subarray(0, 10));
      throw failure("ENOSPC");
    };
  const failing = (code) => () => async () => {
    throw failure(code);
  };
  // what fails
  const cases = [
    [
      ["appendFile", torn],
      ["truncate", failing("EIO")],
    ],
    [
      ["datasync", failing("EIO")],
      ["sync", failing("EIO")],
    ],
  ];
  for (const [[name, wrong], [other, alsoWrong]] of cases) {
    const place = folder();
    const store = await open(place);
    await store.put(put("a"));
    await replaced(handles, other, alsoWrong, () =>
      replaced(handles, name, wrong, async () => {
        await assert.rejects(store.put(put("b")), /ENOSPC|EIO/, name);
        // Again, from the damaged state.
        await assert.rejects(store.put(put("b")), /ENOSPC|EIO/, name);
        await assert.rejects(store.claim(Date.now(), 60_000), /ENOSPC|EIO/, name);
      }),
    );
    assert.equal(await store.put(put("b")), "stored", name);
    const taken = await store.claim(Date.now() + 2_000, 60_000);
    assert.deepEqual([taken.id, taken.attempt], ["a", 1], "no attempt was made before");
    await store.close();
    const again = await open(place);
    assert.deepEqual(await again.counts(), { pending: 2, done: 0, dead: 0 }, name);
    await again.close();
  }
});

test("file store: a store that is closed writes no more", deadline, async () => {
  const place = folder();
  const first = await open(place);
  await first.put(put("a"));
  assert.equal((await first.claim(Date.now(), 60_000)).id, "a");
  await first.close();
  const second = await open(place);
  await second.put(put("b"));
  const writes = [
    () => first.claim(Date.now() + 120_000, 60_000),
    // Repeated, as a worker does.
    () => first.complete("a"),
    () => first.complete("a"),
    () => first.fail("a", "no", undefined),
    () => first.put(put("x")),
    () => first.put(put("x")),
    () => first.setSetting("n", "1"),
  ];
  for (const write of writes) await assert.rejects(write(), /inbox\.journal is closed/);
  await first.close();
  assert.equal(await second.put(put("c")), "stored");
  await second.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 3, done: 0, dead: 0 });
  await again.close();
});

/** Makes a function of file handles wait until it may go on, or has to fail. */
function held() {
  let begin, resolve, reject;
  const began = new Promise((done) => (begin = done));
  const end = new Promise((done, failed) => ([resolve, reject] = [done, failed]));
  const replacement = (original) =>
    async function (...rest) {
      begin();
      await end;
      return original.apply(this, rest);
    };
  return { began, replacement, resolve, reject };
}

test("file store: it keeps its lock until the last write has ended", deadline, async () => {
  const place = folder();
  const store = await open(place);
  const sync = held();
  await replaced(await prototypeOfHandles(), "datasync", sync.replacement, async () => {
    const stored = store.put(put("a"));
    await sync.began;
    const closed = store.close();
    await assert.rejects(store.put(put("b")), /is closed/);
    await assert.rejects(open(place), /belongs to process/);
    sync.resolve();
    assert.equal(await stored, "stored");
    await closed;
  });
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 0, dead: 0 });
  await again.close();
});

test("file store: an event is handed out when it is durable", deadline, async () => {
  const store = await open(folder());
  const handles = await prototypeOfHandles();
  for (const works of [false, true]) {
    const sync = held();
    await replaced(handles, "datasync", sync.replacement, async () => {
      const stored = store.put(put("a"));
      await sync.began;
      assert.equal(await store.claim(Date.now(), 60_000), undefined);
      assert.equal(await store.nextDue(), undefined);
      if (works) sync.resolve();
      else sync.reject(failure("EIO"));
      await (works ? stored : assert.rejects(stored, /EIO/));
    });
    if (works) break;
    assert.equal(await store.claim(Date.now(), 60_000), undefined, "it was refused");
    // The file is written anew, and synced by another function.
    await store.setSetting("n", "1");
  }
  assert.equal((await store.claim(Date.now(), 60_000)).attempt, 1);
  await store.close();
});

test("file store: without its lock it replaces no journal", deadline, async () => {
  const place = folder();
  const first = await open(place);
  await first.put(put("a"));
  unlinkSync(join(place, "inbox.journal.lock.1"));
  const second = await open(place);
  await second.put(put("b"));
  for (const id of ["x", "y", "z"]) await assert.rejects(first.put(put(id)), /no longer the lock/);
  await first.close();
  await assert.rejects(open(place), /belongs to process/, "the lock of the other one stays");
  await second.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 2, done: 0, dead: 0 });
  await again.close();
});

test("file store: only the owner may read the events", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  writeFileSync(path, "", { mode: 0o644 });
  const store = await open(place);
  for (const name of [path, `${path}.lock.1`]) assert.equal(statSync(name).mode & 0o777, 0o600);
  await store.close();
});

test("file store: a clock that is far ahead makes it forget no id", deadline, async () => {
  const place = folder();
  const store = await open(place);
  await store.put(put("a"));
  await store.complete("a");
  await store.close();
  const { now: real } = Date;
  Date.now = () => real() + 41 * 86_400_000;
  try {
    // With an event of the wrong time, so that the journal has it too.
    for (const id of ["b", "c"]) {
      const ahead = await open(place);
      assert.equal(await ahead.put(put("a")), "known", id);
      await ahead.put(put(id));
      await ahead.close();
    }
  } finally {
    Date.now = real;
  }
  const again = await open(place);
  assert.equal(await again.put(put("a")), "known");
  await again.close();
});

test("file store: a journal that is mostly out of date is rewritten", deadline, async () => {
  const place = folder();
  const store = await open(place);
  const body = JSON.stringify({ id: "x", text: "x".repeat(1_000_000) });
  for (let number = 0; number < 40; number += 1) {
    await store.put({ ...put(`e${number}`), body });
    await store.complete(`e${number}`);
  }
  await store.put(put("last"));
  await store.close();
  assert.ok(readFileSync(join(place, "inbox.journal")).length < 25_000_000);
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 40, dead: 0 });
  assert.equal(await again.put(put("e7")), "known");
  await again.close();
});
