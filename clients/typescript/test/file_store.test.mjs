// The store in a file: it survives torn writes, full disks, missing file handles and wrong clocks,
// and one process has it open.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  appendFileSync,
  copyFileSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
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

import { eventually, newEvent } from "./harness.mjs";

const deadline = { timeout: 30_000 };
const folder = () => mkdtempSync(join(tmpdir(), "restive-inbox-"));
const open = (place) => FileStore.open(join(place, "inbox.journal"));

test("file store: a torn line is dropped, a damaged journal is refused", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  const store = await open(place);
  await store.put(newEvent("a"));
  await assert.rejects(open(place), /belongs to process/);
  await store.close();
  appendFileSync(path, '{"o":"put","i":"b","t":"t","b"');
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 0, dead: 0 });
  assert.equal(await again.put(newEvent("b")), "stored");
  await again.close();
  // A process that was killed, or a power cut, leaves a lock behind.
  for (const [number, content] of ["999999999 1", "", "released"].entries()) {
    writeFileSync(`${path}.lock.${number + 50}`, content);
    await (await open(place)).close();
  }
  const lines = readFileSync(path, "utf8").split("\n");
  const damaged = [
    "nonsense",
    "\0\0\0",
    "null",
    '{"o":"other"}',
    '{"o":"done"}',
    '{"o":"put","i":"x","t":"t","b":"{}","f":"x"}',
    Buffer.from([0x22, 0xff, 0x22]),
  ];
  for (const line of damaged) {
    const parts = [`${lines[0]}\n`, line, `\n${lines.slice(1).join("\n")}`];
    const bytes = Buffer.concat(parts.map((part) => Buffer.from(part)));
    writeFileSync(path, bytes);
    const refused = /inbox\.journal:2: .*damaged.*[Rr]estore.*or remove this line/;
    await assert.rejects(open(place), refused, String(line));
    assert.deepEqual(readFileSync(path), bytes, "the journal stays as it is");
  }
  // What the message says helps.
  writeFileSync(path, lines.join("\n"));
  const repaired = await open(place);
  assert.deepEqual(await repaired.counts(), { pending: 2, done: 0, dead: 0 });
  await repaired.close();
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
  const elsewhere = ["999999999", start, `${here}0`, host, "x"];
  const forbidden = () => () => {
    throw failure("EPERM");
  };
  const running = /belongs to process \d+, which is running/;
  const renewed = /belongs to process \d+, .*in another container or on another machine \(.+\)/;
  const [year, minute] = [365 * 86_400, 60];
  // content, its time in seconds from now, whether it is renewed, error
  const cases = [
    [[pid, start, here, host, "x"], -minute, false, running],
    [[pid, `${start}0`, here, host, "x"], 0, false, undefined],
    // The clocks of two machines differ, so only a change of the time counts.
    ...[-year, -minute, 0, minute, year].flatMap((time) => [
      [elsewhere, time, true, renewed],
      [elsewhere, time, false, undefined],
    ]),
  ];
  for (const [content, time, isRenewed, error] of cases) {
    // As if the process were one of another user.
    for (const replacement of [(kill) => kill, forbidden]) {
      const place = folder();
      const path = join(place, "inbox.journal.lock.5");
      writeFileSync(path, content.join(" "));
      let seconds = Math.floor(Date.now() / 1000) + time;
      utimesSync(path, seconds, seconds);
      const passed = (ms) => isRenewed && ms >= 5_000 && utimesSync(path, ++seconds, seconds);
      const waited = await withoutWaiting(passed, () =>
        replaced(process, "kill", replacement, async () => {
          if (error) await assert.rejects(open(place), error, `${content} ${time}`);
          else await (await open(place)).close();
        }),
      );
      if (content === elsewhere) {
        const limit = time < -30 ? 10_000 : 30_000;
        assert.ok(isRenewed ? waited <= 6_000 : waited >= limit, `${waited} ms, ${time}`);
      } else assert.equal(waited, 0);
    }
  }
});

/** Lets timers end at once. Returns how long they would have taken, and reports that so far. */
async function withoutWaiting(passed, action) {
  let total = 0;
  const instant = () => (done, ms) => {
    total += ms;
    passed(total);
    return setImmediate(done);
  };
  await replaced(globalThis, "setTimeout", instant, action);
  return total;
}

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
      if (!String(path).includes(".new-") || free-- <= 0) throw failure("EMFILE");
      return open(path, ...rest);
    };
  await replaced(promises, "open", failing, async () => {
    for (let number = 0; number < 36; number += 1) {
      await store.put({ ...newEvent(`e${number}`), body });
      await store.complete(`e${number}`);
    }
    await store.put(newEvent("last"));
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
    await store.put(newEvent("a"));
    await replaced(handles, other, alsoWrong, () =>
      replaced(handles, name, wrong, async () => {
        await assert.rejects(store.put(newEvent("b")), /ENOSPC|EIO/, name);
        // Again, from the damaged state.
        await assert.rejects(store.put(newEvent("b")), /ENOSPC|EIO/, name);
        await assert.rejects(store.claim(Date.now(), 60_000), /ENOSPC|EIO/, name);
      }),
    );
    assert.equal(await store.put(newEvent("b")), "stored", name);
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
  await first.put(newEvent("a"));
  assert.equal((await first.claim(Date.now(), 60_000)).id, "a");
  await first.close();
  const second = await open(place);
  await second.put(newEvent("b"));
  const writes = [
    () => first.claim(Date.now() + 120_000, 60_000),
    // Repeated, as a worker does.
    () => first.complete("a"),
    () => first.complete("a"),
    () => first.fail("a", "no", undefined),
    () => first.put(newEvent("x")),
    () => first.put(newEvent("x")),
    () => first.setSetting("n", "1"),
  ];
  for (const write of writes) await assert.rejects(write(), /inbox\.journal is closed/);
  await first.close();
  assert.equal(await second.put(newEvent("c")), "stored");
  await second.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 3, done: 0, dead: 0 });
  await again.close();
});

test("file store: a full disk does not keep the lock after the end", deadline, async () => {
  const failing = () => async () => {
    throw failure("ENOSPC");
  };
  // what fails: the file systems that need space to truncate are few
  for (const [other, isClosed] of [["rename", true], ["truncate", true], ["truncate", false]]) {
    const place = folder();
    let file;
    const kept = (open) => async (...rest) => (file = await open(...rest));
    let store;
    await replaced(promises, "open", kept, async () => (store = await open(place)));
    await store.put(newEvent("a"));
    const { close } = file;
    if (!isClosed) file.close = () => close.call(file).then(failing());
    await replaced(promises, "writeFile", failing, () =>
      replaced(promises, other, failing, () =>
        // A file that could not be closed is reported, and the lock is given back.
        isClosed ? store.close() : assert.rejects(store.close(), /ENOSPC/),
      ),
    );
    const again = await open(place);
    assert.equal(await again.put(newEvent("a")), "known", other);
    await again.close();
  }
});

test("file store: a lock that cannot be taken over is an error", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal.lock");
  writeFileSync(`${path}.7`, "999999999 1");
  const failing = (unlink) => async (name) => {
    if (String(name).endsWith(".7")) throw failure("EACCES");
    return unlink(name);
  };
  await replaced(promises, "unlink", failing, () => assert.rejects(open(place), /EACCES/));
  assert.deepEqual(readdirSync(place), ["inbox.journal.lock.7"], "nothing else is left");
  await (await open(place)).close();
});

/** Makes the first calls of a function wait until they may go on, or have to fail. */
function held(calls = Infinity) {
  let begin, resolve, reject;
  const began = new Promise((done) => (begin = done));
  const end = new Promise((done, failed) => ([resolve, reject] = [done, failed]));
  const replacement = (original) =>
    async function (...rest) {
      begin();
      if (calls-- > 0) await end;
      return original.apply(this, rest);
    };
  return { began, replacement, resolve, reject };
}

test("file store: it keeps its lock until the last write has ended", deadline, async () => {
  const place = folder();
  const store = await open(place);
  const sync = held();
  await replaced(await prototypeOfHandles(), "datasync", sync.replacement, async () => {
    const stored = store.put(newEvent("a"));
    await sync.began;
    const closed = store.close();
    await assert.rejects(store.put(newEvent("b")), /is closed/);
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
      const stored = store.put(newEvent("a"));
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
  await first.put(newEvent("a"));
  unlinkSync(join(place, "inbox.journal.lock.1"));
  const second = await open(place);
  await second.put(newEvent("b"));
  const lost = /no longer the lock.*[Oo]pen the store again/;
  for (const id of ["x", "y", "z"]) await assert.rejects(first.put(newEvent(id)), lost);
  await first.close();
  await assert.rejects(open(place), /belongs to process/, "the lock of the other one stays");
  await second.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 2, done: 0, dead: 0 });
  await again.close();
});

test("file store: what is written while its lock is lost is not stored", deadline, async () => {
  const place = folder();
  const handles = await prototypeOfHandles();
  const first = await open(place);
  const lost = /no longer the lock.*[Oo]pen the store again/;
  const sync = held();
  let second;
  await replaced(handles, "datasync", sync.replacement, async () => {
    const stored = first.put(newEvent("a"));
    await sync.began;
    // As after a pause of this process.
    unlinkSync(join(place, "inbox.journal.lock.1"));
    second = await open(place);
    sync.resolve();
    await assert.rejects(stored, lost);
  });
  assert.equal(await first.claim(Date.now(), 60_000), undefined, "it is not handed out");
  await first.close();
  await second.close();
  // The message says what to do.
  const again = await open(place);
  assert.equal(await again.put(newEvent("b")), "stored");
  await again.close();
});

test("file store: a rewrite that lost its lock replaces no journal", deadline, async () => {
  const place = folder();
  const handles = await prototypeOfHandles();
  const first = await open(place);
  const failing = () => async () => {
    throw failure("EIO");
  };
  await replaced(handles, "datasync", failing, () =>
    assert.rejects(first.put(newEvent("a")), /EIO/),
  );
  const [rename, sync] = [held(1), held(1)];
  let second;
  await replaced(promises, "rename", rename.replacement, async () => {
    const stored = first.put(newEvent("a"));
    await rename.began;
    unlinkSync(join(place, "inbox.journal.lock.1"));
    await replaced(handles, "sync", sync.replacement, async () => {
      const opened = open(place);
      await sync.began;
      rename.resolve();
      await assert.rejects(stored, /ENOENT|no longer the lock/);
      sync.resolve();
      second = await opened;
    });
  });
  assert.equal(await second.put(newEvent("b")), "stored");
  await first.close();
  await second.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 2, done: 0, dead: 0 });
  await again.close();
  const files = readdirSync(place).filter((name) => name.includes(".new"));
  assert.deepEqual(files, [], "no draft is left");
});

test("file store: only the owner may read the events", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  writeFileSync(path, "", { mode: 0o644 });
  const store = await open(place);
  for (const name of [path, `${path}.lock.1`]) assert.equal(statSync(name).mode & 0o777, 0o600);
  await store.close();
});

/** Runs the action with a clock that is wrong by so many days. */
async function wrongBy(days, action) {
  const { now: real } = Date;
  Date.now = () => real() + days * 86_400_000;
  try {
    return await action(Date.now);
  } finally {
    Date.now = real;
  }
}

test("file store: a wrong clock makes it forget no id", deadline, async () => {
  // In each life of the process: how wrong its clock is at the start and later, in days.
  for (const clocks of [
    [[0, 0], [41, 41], [41, 41], [0, 0]],
    [[0, -41], [0, 0], [0, 0]],
    [[0, 41], [0, 0], [41, 0], [0, 0]],
    [[-10_000, 0], [0, 0], [0, 0]],
    [[0, 0], [10_000, -10_000], [-10_000, 10_000], [0, 0]],
  ]) {
    for (const isKilled of [false, true]) {
      let place = folder();
      for (const [number, [start, end]] of clocks.entries()) {
        const killed = folder();
        const store = await wrongBy(start, () => open(place));
        const name = `${JSON.stringify(clocks)}, life ${number}, killed: ${isKilled}`;
        await wrongBy(end, async () => {
          for (let known = 0; known < number; known += 1) {
            assert.equal(await store.put(newEvent(`e${known}`)), "known", `e${known}: ${name}`);
          }
          await store.put(newEvent(`e${number}`));
          await store.complete(`e${number}`);
          copyFileSync(join(place, "inbox.journal"), join(killed, "inbox.journal"));
          await store.close();
        });
        if (isKilled) place = killed;
      }
    }
  }
});

/** Runs the action with a clock of the process that goes on by so many days. */
async function later(days, action) {
  const now = (real) => () => real.call(performance) + days * 86_400_000;
  await replaced(performance, "now", now, action);
}

test("file store: it forgets an id after 40 days in which it was open", deadline, async () => {
  for (const isKilled of [false, true]) {
    let place = folder();
    // Lives of the process, in each of which 30 days pass.
    for (let number = 0; number < 4; number += 1) {
      const store = await open(place);
      const id = `e${number}`;
      // The one of the last life is known, those before are forgotten.
      assert.equal((await store.counts()).done, Math.min(number, 1), id);
      if (number > 0) assert.equal(await store.put(newEvent(`e${number - 1}`)), "known");
      await store.put(newEvent(id));
      await store.complete(id);
      const killed = folder();
      await later(30, async () => {
        // A time of the store is in the journal, also if the process is killed.
        await store.setSetting("n", id);
        copyFileSync(join(place, "inbox.journal"), join(killed, "inbox.journal"));
        await store.close();
      });
      if (isKilled) place = killed;
    }
  }
});

test("file store: prune counts from the time of the call", deadline, async () => {
  const place = folder();
  const day = 86_400_000;
  const store = await open(place);
  await store.put(newEvent("a"));
  await store.complete("a");
  for (const days of [0, 1_000, -1_000]) {
    await wrongBy(days, async (now) => assert.equal(await store.prune(now() - day), 0));
  }
  await later(2, async () => assert.equal(await store.prune(Date.now() - day), 1));
  await store.close();
});

test("file store: a clock that was ahead delays no retry", deadline, async () => {
  let place = folder();
  for (const isKilled of [true, false]) {
    const killed = folder();
    await wrongBy(365, async (now) => {
      const store = await open(place);
      await store.put(newEvent("a"));
      await store.claim(now(), 60_000);
      await store.fail("a", "no", now() + 5_000);
      copyFileSync(join(place, "inbox.journal"), join(killed, "inbox.journal"));
      await store.close();
    });
    const again = await open(isKilled ? killed : place);
    const due = (await again.nextDue()) - Date.now();
    assert.ok(due > 0 && due <= 5_000, `${due}`);
    await again.close();
    place = folder();
  }
});

test("file store: a journal that is mostly out of date is rewritten", deadline, async () => {
  const place = folder();
  const store = await open(place);
  const body = JSON.stringify({ id: "x", text: "x".repeat(1_000_000) });
  for (let number = 0; number < 40; number += 1) {
    await store.put({ ...newEvent(`e${number}`), body });
    await store.complete(`e${number}`);
  }
  await store.put(newEvent("last"));
  await store.close();
  assert.ok(readFileSync(join(place, "inbox.journal")).length < 25_000_000);
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 40, dead: 0 });
  assert.equal(await again.put(newEvent("e7")), "known");
  await again.close();
});

test("file store: a journal of any size is read and written in parts", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  const body = (number) => JSON.stringify({ id: `e${number}`, text: "ä".repeat(1_500_000) });
  const line = (number) => ({ o: "put", i: `e${number}`, t: "t", b: body(number), f: "", at: 1 });
  for (let number = 0; number < 12; number += 1) {
    appendFileSync(path, `${JSON.stringify(line(number))}\n`);
  }
  appendFileSync(path, '{"o":"done"');
  const handles = await prototypeOfHandles();
  const sizes = [];
  const counted = (append) =>
    function (bytes) {
      sizes.push(bytes.length);
      return append.call(this, bytes);
    };
  // A text has at most 512 MiB, and `readFile` ends at 2 GiB.
  const refused = (read) => async (name, ...rest) => {
    if (name === path) throw new Error("it is read as a whole");
    return read(name, ...rest);
  };
  await replaced(handles, "appendFile", counted, () =>
    replaced(promises, "readFile", refused, async () => {
      const store = await open(place);
      assert.deepEqual(await store.counts(), { pending: 12, done: 0, dead: 0 });
      for (let number = 0; number < 12; number += 1) {
        const event = await store.claim(Date.now(), 60_000);
        assert.equal(event.body, body(number));
      }
      const puts = Array.from("abcdef", (id) => store.put({ ...newEvent(id), body: body(1) }));
      await Promise.all(puts);
      await store.close();
    }),
  );
  assert.ok(Math.max(...sizes) < 5_000_000, `${sizes}`);
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 18, done: 0, dead: 0 });
  await again.close();
});

test("file store: the bodies that wait have a limit", deadline, async () => {
  const path = join(folder(), "inbox.journal");
  const options = { maxPendingBytes: 1_000 };
  const body = JSON.stringify("x".repeat(598));
  const event = (id) => ({ ...newEvent(id), body });
  let store = await FileStore.open(path, options);
  assert.equal(await store.put(event("a")), "stored");
  await assert.rejects(store.put(event("b")), /maxPendingBytes is 1000/);
  assert.equal(await store.put(event("a")), "known", "only what is new is refused");
  await store.complete("a");
  assert.equal(await store.put(event("b")), "stored");
  await store.close();
  store = await FileStore.open(path, options);
  await assert.rejects(store.put(event("c")), /maxPendingBytes/, "also after a restart");
  await store.complete("b");
  await store.complete("b");
  assert.equal(await store.put(event("c")), "stored");
  await store.close();
});

test("file store: what is no text is refused and damages nothing", deadline, async () => {
  const place = folder();
  const store = await open(place);
  await store.put(newEvent("a"));
  for (const wrong of [5, null, undefined, {}]) {
    for (const name of ["id", "type", "body", "fingerprint"]) {
      await assert.rejects(store.put({ ...newEvent("b"), [name]: wrong }), TypeError);
    }
    await assert.rejects(store.setSetting(wrong, "1"), TypeError);
    await assert.rejects(store.setSetting("n", wrong), TypeError);
    await assert.rejects(store.complete(wrong), TypeError);
    await assert.rejects(store.fail(wrong, "no", undefined), TypeError);
  }
  await store.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 0, dead: 0 });
  await again.close();
});

const onLinux = { ...deadline, skip: process.platform !== "linux" };
test("file store: a killed process nobody waited for has no lock", onLinux, async () => {
  const place = folder();
  const store = await open(place);
  const own = readFileSync(join(place, "inbox.journal.lock.1"), "utf8").split(" ");
  await store.close();
  // `sleep` never asks for the exit status of a child.
  const parent = spawn("sh", ["-c", "sleep 0 & echo $!; exec sleep 60"], { stdio: "pipe" });
  try {
    const pid = await new Promise((resolve) => parent.stdout.once("data", resolve));
    const fields = () => {
      const stat = readFileSync(`/proc/${Number(pid)}/stat`, "utf8");
      return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    };
    await eventually(() => fields()[0] === "Z", "the process has ended");
    const content = [Number(pid), fields()[19], own[2], own[3], "x"].join(" ");
    writeFileSync(join(place, "inbox.journal.lock.5"), content);
    await (await open(place)).close();
  } finally {
    parent.kill("SIGKILL");
  }
});

test("file store: a full disk at the start keeps the journal in use", deadline, async () => {
  const place = folder();
  const path = join(place, "inbox.journal");
  let store = await open(place);
  await store.put(newEvent("a"));
  await store.close();
  appendFileSync(path, '{"o":"put","i":"b","t":"t","b"');
  const full = (append) =>
    async function (bytes) {
      if (bytes.length > 0) throw failure("ENOSPC");
      return append.call(this, bytes);
    };
  await replaced(await prototypeOfHandles(), "appendFile", full, async () => {
    store = await open(place);
    assert.equal(await store.put(newEvent("a")), "known");
  });
  assert.equal(await store.put(newEvent("b")), "stored");
  copyFileSync(path, join(place, "copy.journal"));
  await store.close();
  for (const name of ["inbox.journal", "copy.journal"]) {
    const again = await FileStore.open(join(place, name));
    assert.deepEqual(await again.counts(), { pending: 2, done: 0, dead: 0 }, name);
    await again.close();
  }
});

test("file store: a full disk is tried once a second", deadline, async () => {
  const store = await open(folder());
  let writes = 0;
  const full = () => async () => {
    writes += 1;
    throw failure("ENOSPC");
  };
  await replaced(await prototypeOfHandles(), "appendFile", full, async () => {
    const began = performance.now();
    const puts = async (id) => {
      while (performance.now() - began < 2_500) {
        await assert.rejects(store.put(newEvent(`${id}2`)), /ENOSPC/);
      }
    };
    await Promise.all(Array.from("abcd", puts));
  });
  assert.ok(writes <= 5, `${writes} writes in 2.5 seconds`);
  assert.equal(await store.put(newEvent("e")), "stored");
  await store.close();
});

test("file store: after a full disk it needs no space for a second journal", deadline, async () => {
  const place = folder();
  const store = await open(place);
  await store.put(newEvent("a"));
  const torn = (append) =>
    async function (bytes) {
      await append.call(this, bytes.subarray(0, 10));
      throw failure("ENOSPC");
    };
  const noDraft =
    (open) =>
    async (path, ...rest) => {
      if (String(path).includes(".new-")) throw failure("ENOSPC");
      return open(path, ...rest);
    };
  await replaced(promises, "open", noDraft, async () => {
    await replaced(await prototypeOfHandles(), "appendFile", torn, () =>
      assert.rejects(store.put(newEvent("b")), /ENOSPC/),
    );
    assert.equal(await store.put(newEvent("b")), "stored");
    assert.equal((await store.claim(Date.now(), 60_000)).id, "a");
    await store.complete("a");
  });
  await store.close();
  const again = await open(place);
  assert.deepEqual(await again.counts(), { pending: 1, done: 1, dead: 0 });
  await again.close();
});
