// A lock file that names its process. A process that was killed leaves the file behind, but not a
// process with its id and start time. A process in another container, or on another machine, cannot
// be seen from here: while it runs, it renews the time of its file.
//
// The files are numbered, and the highest number is the lock. Whoever takes over the lock of a dead
// process creates the next number, with its content, in one step: of several processes one
// succeeds. No number is used again, so a process that was slow cannot remove the lock of another.

import {
  link,
  readFile,
  readdir,
  readlink,
  rename,
  stat,
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
/** Content of a lock that its process has given back. */
const RELEASED = "released";

export interface Lock {
  /** Fails if the lock is no longer ours. */
  verify(): Promise<void>;
  release(): Promise<void>;
}

export async function lock(path: string): Promise<Lock> {
  const token = Math.random().toString(36).slice(2);
  const draft = `${path}.${process.pid}.${token}`;
  // The token tells two locks of one process apart.
  const place = await placeOf();
  const content = `${process.pid} ${await startOf(process.pid)} ${place} ${hostname()} ${token}`;
  await writeFile(draft, content, { mode: 0o600 });
  try {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const found = await numbers(path);
      const last = found.at(-1) ?? 0;
      if (last > 0) await refuseIfHeld(`${path}.${last}`, place);
      const own = last + 1;
      if (!(await created(draft, `${path}.${own}`))) continue;
      // Another process may have been faster by several numbers, and have removed this one.
      const now = await numbers(path);
      const older = now.filter((number) => number < own);
      if (now.at(-1) === own) {
        for (const number of older) await unlink(`${path}.${number}`).catch(() => undefined);
        return held(`${path}.${own}`, content);
      }
      await unlink(`${path}.${own}`).catch(() => undefined);
    }
  } finally {
    await unlink(draft).catch(() => undefined);
  }
  throw new Error(`${path} could not be created: several processes compete for it`);
}

function held(path: string, content: string): Lock {
  const renew = () => {
    const now = new Date();
    // If it fails for long, another process may take the lock over; `verify` finds that.
    utimes(path, now, now).catch(() => undefined);
  };
  const timer = setInterval(renew, RENEW_MS);
  timer.unref();
  return {
    verify: () => verify(path, content),
    release: () => {
      clearInterval(timer);
      return release(path, content);
    },
  };
}

/** Whoever takes over a lock removes its file. */
async function verify(path: string, content: string): Promise<void> {
  if ((await contentOf(path)) === content) return;
  throw new Error(`${path} is no longer the lock of this process: nothing is written any more`);
}

/** The file stays, so that its number is not used again. */
async function release(path: string, content: string): Promise<void> {
  if ((await contentOf(path)) !== content) return;
  const draft = `${path}.${process.pid}.released`;
  await writeFile(draft, RELEASED, { mode: 0o600 });
  await rename(draft, path);
}

/** Gone: its process was superseded. The next look at the numbers shows by which. */
function contentOf(path: string): Promise<string> {
  return readFile(path, "utf8").catch(ifGone(RELEASED));
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
  const [pid = "", start = "", place = here, host = ""] = (await contentOf(path)).split(" ");
  // Anything else, such as a file that a power cut left empty, names no process.
  if (!/^[1-9]\d*$/.test(pid)) return;
  if (place === here) {
    if (!(await isAlive(Number(pid), start))) return;
    throw new Error(`${path} belongs to process ${pid}, which is running`);
  }
  const found = await stat(path).catch(ifGone(undefined));
  if (!found || Date.now() - found.mtimeMs > STALE_MS) return;
  throw new Error(
    `${path} belongs to process ${pid} in another container or on another machine (${host}). ` +
      `If it has ended, try again in ${STALE_MS / 1000} seconds, or remove this file`,
  );
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
  const found = await startOf(pid);
  return found === "" || found === start;
}

/** The start time of a process; empty where the system does not show it. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}
