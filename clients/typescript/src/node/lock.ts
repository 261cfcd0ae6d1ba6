// A lock file that names its process. A process that was killed leaves the file behind, but not a
// process with its id and start time. A process in another container, or on another machine, cannot
// be seen from here: while it runs, it renews the time of its file. Clocks differ, so that time
// says nothing by itself: a process that wants the lock waits, and looks whether it changes.
//
// The files are numbered, and the highest number is the lock. A process that takes over the lock of
// a dead one creates the next number, with its content, in one step: of several processes one
// succeeds. No number is used again, so a process that was slow cannot remove the lock of another.

import { randomBytes } from "node:crypto";
import {
  link,
  readFile,
  readdir,
  readlink,
  stat,
  truncate,
  unlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { hostname } from "node:os";
import { basename, dirname } from "node:path";

/** Several processes that start together need a few. */
const MAX_ATTEMPTS = 100;
/** How often a process renews the time of its lock file. */
const RENEW_MS = 5_000;
/** A process elsewhere that did not renew its file for so long has ended: six times were missed. */
const STALE_MS = 30_000;
/** The same if the file is older by the clock here, which may be wrong: two times were missed. */
const CONFIRM_MS = 10_000;
/** How often a process that waits looks at the file. */
const LOOK_MS = 1_000;

export interface Lock {
  /** No other lock has the same. */
  readonly token: string;
  /** Fails if the lock is no longer ours. */
  verify(): Promise<void>;
  release(): Promise<void>;
}

export async function lock(path: string): Promise<Lock> {
  const token = randomBytes(8).toString("hex");
  const draft = `${path}.${process.pid}.${token}`;
  // The token tells two locks of one process apart.
  const place = await placeOf();
  const content = `${process.pid} ${await startOf(process.pid)} ${place} ${hostname()} ${token}`;
  try {
    await writeFile(draft, content, { mode: 0o600 });
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const found = await numbers(path);
      const last = found.at(-1) ?? 0;
      if (last > 0) await refuseIfHeld(`${path}.${last}`, place);
      const own = last + 1;
      if (!(await created(draft, `${path}.${own}`))) continue;
      if (await replacesOthers(path, own)) return held(`${path}.${own}`, content, token);
    }
  } finally {
    // It is no lock, so it may stay.
    await unlink(draft).catch(() => undefined);
  }
  throw new Error(`${path} could not be created: several processes compete for it`);
}

/**
 * False if another process was faster by several numbers, and has perhaps removed this one. The
 * older files are removed: by that, a process that was only slow sees that it has lost its lock.
 */
async function replacesOthers(path: string, own: number): Promise<boolean> {
  try {
    const found = await numbers(path);
    if (found.at(-1) === own) {
      for (const number of found) if (number < own) await remove(`${path}.${number}`);
      return true;
    }
  } catch (error) {
    await remove(`${path}.${own}`);
    throw error;
  }
  await remove(`${path}.${own}`);
  return false;
}

function remove(path: string): Promise<void> {
  return unlink(path).catch(ifGone(undefined));
}

function held(path: string, content: string, token: string): Lock {
  const renew = () => {
    const now = new Date();
    // If it fails for long, another process may take the lock over; `verify` finds that.
    utimes(path, now, now).catch(() => undefined);
  };
  const timer = setInterval(renew, RENEW_MS);
  timer.unref();
  return {
    token,
    verify: () => verify(path, content),
    release: () => {
      clearInterval(timer);
      return release(path, content);
    },
  };
}

/** A process that takes over a lock removes its file. */
async function verify(path: string, content: string): Promise<void> {
  if ((await contentOf(path)) === content) return;
  throw new Error(
    `${path} is no longer the lock of this process: it was not renewed for ` +
      `${STALE_MS / 1000} seconds, or was removed, and another process may have the journal. ` +
      "Nothing is written any more. Close this store, then open the store again",
  );
}

/**
 * The file stays, so that its number is not used again. It becomes empty, and so names no process:
 * that needs no space, so it works on a full disk.
 */
async function release(path: string, content: string): Promise<void> {
  if ((await contentOf(path)) !== content) return;
  try {
    await truncate(path);
  } catch {
    // Some file systems need space for it, and a process may have no free file handle.
    await remove(path);
  }
}

/** Empty if it is gone: its process was superseded. The numbers show by which. */
function contentOf(path: string): Promise<string> {
  return readFile(path, "utf8").catch(ifGone(""));
}

/** What cannot be read for another reason may be in use. */
function ifGone<T>(value: T): (error: { code?: string }) => T {
  return (error) => {
    if (error.code === "ENOENT") return value;
    throw error;
  };
}

/** The numbers of the lock files, in ascending order. */
async function numbers(path: string): Promise<number[]> {
  const prefix = `${basename(path)}.`;
  const names = await readdir(dirname(path));
  return names
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length))
    .filter((rest) => /^[1-9]\d{0,14}$/.test(rest))
    .map(Number)
    .sort((one, other) => one - other);
}

async function refuseIfHeld(path: string, here: string): Promise<void> {
  const content = await contentOf(path);
  const [pid = "", start = "", place = here, host = ""] = content.split(" ");
  // Anything else, such as a file that was released, or that a power cut left empty, names no
  // process.
  if (!/^[1-9]\d*$/.test(pid)) return;
  if (place === here) {
    if (!(await isAlive(Number(pid), start))) return;
    throw new Error(`${path} belongs to process ${pid}, which is running`);
  }
  if (!(await isRenewed(path, content))) return;
  throw new Error(
    `${path} belongs to process ${pid}, which is running in another container or on another ` +
      `machine (${host}): only one process may have the journal open`,
  );
}

/** Whether a process renews the file. Returns when it does, or did not for long. */
async function isRenewed(path: string, content: string): Promise<boolean> {
  const first = await timeOf(path);
  if (first === undefined) return false;
  const wait = Date.now() - first > STALE_MS ? CONFIRM_MS : STALE_MS;
  // Counted: a pause of this process is no time in which it has looked.
  for (let passed = 0; passed < wait; passed += LOOK_MS) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    // Gone, or given back.
    if ((await contentOf(path)) !== content) return false;
    const time = await timeOf(path);
    if (time !== first) return time !== undefined;
  }
  return false;
}

async function timeOf(path: string): Promise<number | undefined> {
  return (await stat(path).catch(ifGone(undefined)))?.mtimeMs;
}

/** Where process ids have the same meaning: one start of one machine, and one pid namespace. */
async function placeOf(): Promise<string> {
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "");
  const namespace = await readlink("/proc/self/ns/pid").catch(() => "");
  return `${boot.trim()}/${namespace}`;
}

/** False if the file exists. */
async function created(draft: string, path: string): Promise<boolean> {
  try {
    await link(draft, path);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === "EEXIST") return false;
    throw error;
  }
}

async function isAlive(pid: number, start: string): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // Otherwise it is the process of another user.
    if ((error as { code?: string }).code !== "EPERM") return false;
  }
  const found = await statOf(pid);
  return !found.hasEnded && (found.start === "" || found.start === start);
}

async function startOf(pid: number): Promise<string> {
  return (await statOf(pid)).start;
}

/** The start time of a process; empty where the system does not show it. */
async function statOf(pid: number): Promise<{ start: string; hasEnded: boolean }> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // The name before the last parenthesis may contain anything.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state = "", threads, start = ""] = [fields[0], Number(fields[17]), fields[19]];
  // A process that was killed stays visible until its parent asks for its exit status. While it has
  // more threads, one of them may still be writing.
  return { start, hasEnded: /^[ZXx]$/.test(state) && !(threads > 1) };
}
