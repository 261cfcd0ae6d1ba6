// The inbox in one file, for Node without SQLite: a journal of JSON lines, read at the start. All
// ids are in memory, some 200 bytes each; with more than a million a month, use `SqliteStore`.

import { open, readdir, rename, unlink, type FileHandle } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { MemoryStore, REMEMBER_MS, type Entry, type NewEvent } from "../inbox.js";
import { lock, type Lock } from "./lock.js";

/**
 * One change. `put` and `set` are synced; the others may be repeated after a power cut. `at` is a
 * time of the store, see `#openTime`; `r` is one of the machine, `d` milliseconds ahead.
 */
type Line =
  | { o: "put"; i: string; t: string; b: string; f: string; at: number }
  | { o: "claim"; i: string }
  | { o: "done"; i: string }
  | { o: "fail"; i: string; e: string; r?: number; d?: number }
  | { o: "retry"; i: string }
  | { o: "set"; n: string; v: string }
  /**
   * A finished event, after the journal was rewritten. With its resource and revision if they are
   * the newest of the resource.
   */
  | { o: "old"; i: string; t: string; f: string; at: number; k?: string; v?: string };

interface Waiting {
  line: string;
  sync: boolean;
  done: (error?: unknown) => void;
}

/** The journal is rewritten when it has this size and is mostly out of date. */
const REWRITE_BYTES = 16 * 1024 * 1024;
/** The journal is read and written in parts: one text has at most 512 MiB. */
const PART_BYTES = 1024 * 1024;
/** Bodies of events that are not done are in memory. Node has 2 GiB on a machine with 8 GiB. */
const MAX_PENDING_BYTES = 1024 * 1024 * 1024;
/** Of the whole store after a failed write: a full disk is not tried a thousand times a second. */
const PAUSE_MS = 1000;
/** Events contain data of customers. */
const OWNER_ONLY = 0o600;
/** Where the clock of the open time ended; see `#openTime`. */
const OPEN_TIME = "store.open_time";
/** How often that is written. What a kill loses only keeps ids longer. */
const STORE_OPEN_TIME_MS = 10 * 60 * 1000;

export interface FileStoreOptions {
  /**
   * Bytes of the bodies of all events that are not done. With more, `put` refuses new events, so
   * the receiver responds with 503. Default: 1 GiB.
   */
  maxPendingBytes?: number;
}

export class FileStore extends MemoryStore {
  readonly #path: string;
  readonly #lock: Lock;
  readonly #maxPendingBytes: number;
  #pendingBytes = 0;
  #file: FileHandle;
  /** The folder, while it does not durably name the new journal. */
  #folder: FileHandle | undefined;
  #size = 0;
  #liveBytes = 0;
  #queue: Waiting[] = [];
  #writing: Promise<void> | undefined;
  /** A write failed, so the end of the file is unknown: it is rewritten before the next write. */
  #damaged = false;
  /** Except that this write was taken back. */
  #takenBack = false;
  #closed: Promise<void> | undefined;
  #openedAt = 0;
  #openTimeStored = 0;
  readonly #opened = performance.now();

  private constructor(path: string, file: FileHandle, held: Lock, options: FileStoreOptions) {
    super();
    this.#path = path;
    this.#file = file;
    this.#lock = held;
    this.#maxPendingBytes = options.maxPendingBytes ?? MAX_PENDING_BYTES;
  }

  /** Opens or creates the journal. Only one process may have it open. */
  static async open(path: string, options: FileStoreOptions = {}): Promise<FileStore> {
    const held = await lock(`${path}.lock`);
    let store: FileStore | undefined;
    try {
      await removeDrafts(path);
      store = new FileStore(path, await open(path, "a+", OWNER_ONLY), held, options);
      await store.#load();
      return store;
    } catch (error) {
      // The first error says why.
      if (store) await store.#closeFiles().catch(() => undefined);
      await held.release().catch(() => undefined);
      throw error;
    }
  }

  /** Ends after the writes in progress; later ones are refused. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    // Begun before `#closed` is set, so it is the last write. If it fails, ids are kept longer.
    await this.#write(timeLine(this.#openTime()), true).catch(() => undefined);
    // Not earlier: this process may write as long as it holds the lock, and no longer.
    while (this.#writing) await this.#writing;
    try {
      await this.#closeFiles();
    } finally {
      await this.#lock.release();
    }
  }

  async #closeFiles(): Promise<void> {
    const folder = this.#folder;
    this.#folder = undefined;
    // Everything is synced already, or was refused.
    await folder?.close().catch(() => undefined);
    await this.#file.close();
  }

  /**
   * A clock that counts only while the store is open, for the age of ids. A clock of the machine
   * that is or was wrong must not make the store forget them.
   */
  #openTime(): number {
    return Math.floor(this.#openedAt + performance.now() - this.#opened);
  }

  override async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    requireText("event", event.id, event.type, event.body, event.fingerprint);
    const known = this.check(event);
    if (known) {
      // Perhaps another request has just brought it, and it is not durable yet.
      await this.#write(undefined, true);
      return this.entries.has(event.id) ? known : this.put(event);
    }
    const at = this.#openTime();
    const { id, type, body, fingerprint } = event;
    if (this.#pendingBytes + Buffer.byteLength(body) > this.#maxPendingBytes) {
      throw new Error(
        `${this.#path}: the events that are not done have ${this.#pendingBytes} bytes, and ` +
          `maxPendingBytes is ${this.#maxPendingBytes}`,
      );
    }
    this.remember(event, at);
    try {
      await this.#write({ o: "put", i: id, t: type, b: body, f: fingerprint, at }, true);
    } catch (error) {
      this.#releaseBody(id);
      this.entries.delete(id);
      throw error;
    }
    // Not earlier: an event that is refused is sent again, so nobody may have handled it.
    this.enqueue(id);
    return "stored";
  }

  protected override remember(event: Omit<NewEvent, "source">, at: number): void {
    this.#releaseBody(event.id);
    super.remember(event, at);
    this.#pendingBytes += Buffer.byteLength(event.body);
  }

  protected override finish(id: string): void {
    this.#releaseBody(id);
    super.finish(id);
  }

  #releaseBody(id: string): void {
    this.#pendingBytes -= Buffer.byteLength(this.entries.get(id)?.body ?? "");
  }

  override async claim(now: number, leaseMs: number) {
    const event = await super.claim(now, leaseMs);
    if (!event) return undefined;
    try {
      await this.#write({ o: "claim", i: event.id }, false);
    } catch (error) {
      // Nobody gets it, so it is no attempt.
      this.unclaim(event.id, now + PAUSE_MS);
      throw error;
    }
    return event;
  }

  override async complete(id: string): Promise<void> {
    this.finish(id);
    await this.#write({ o: "done", i: id }, false);
  }

  override async fail(id: string, error: string, retryAt: number | undefined): Promise<void> {
    this.setFailed(id, error, retryAt);
    await this.#write({ o: "fail", i: id, e: error, ...dueTime(retryAt, this.now()) }, false);
  }

  override async retry(id: string): Promise<boolean> {
    const found = this.revive(id);
    if (found) await this.#write({ o: "retry", i: id }, true);
    return found;
  }

  /** Compares ages, not times: the clock of the machine may have been wrong when they arrived. */
  override async prune(before: number): Promise<number> {
    return super.prune(this.#openTime() - (Date.now() - before));
  }

  override async setSetting(name: string, value: string): Promise<void> {
    requireText("setting", name, value);
    await super.setSetting(name, value);
    await this.#write({ o: "set", n: name, v: value }, true);
  }

  async #load(): Promise<void> {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    let number = 0;
    for await (const line of linesOf(this.#file)) {
      number += 1;
      this.#size += line.length + 1;
      try {
        this.#apply(JSON.parse(decoder.decode(line)) as Line);
      } catch {
        // Without the cause, which may contain data of customers.
        throw new Error(
          `${this.#path}:${number}: this line is damaged, or of a newer release. The journal is ` +
            "not opened, because an event may be missing. Restore the file from a backup, or " +
            "remove this line and let `reconcile` read the events again",
        );
      }
    }
    this.#startClock();
    await this.#forget();
    try {
      await this.#rewrite();
    } catch (error) {
      if (!isFull(error)) throw error;
      // The journal as it is stays in use, without the incomplete line at its end.
      await this.#file.truncate(this.#size);
      this.#liveBytes = this.#size;
    }
  }

  #startClock(): void {
    const all = [...this.entries.values()];
    const newest = all.reduce((time, { receivedAt }) => Math.max(time, receivedAt), 0);
    const now = Date.now();
    const stored = Number(this.settings.get(OPEN_TIME));
    const isKnown = Number.isFinite(stored) && stored > 0;
    this.#openedAt = isKnown ? stored : Math.min(now, newest || now);
    // Received after that time was written, or by a release that used the clock of the machine:
    // their age counts from here.
    for (const entry of all) entry.receivedAt = Math.min(entry.receivedAt, this.#openedAt);
  }

  #forget(): Promise<number> {
    return super.prune(this.#openTime() - REMEMBER_MS);
  }

  #apply(line: Line): void {
    const key = line.o === "set" ? line.n : line.i;
    const isNew = line.o === "put" || line.o === "old";
    if (typeof key !== "string" || (isNew && !Number.isFinite(line.at))) {
      throw new Error("an incomplete line");
    }
    switch (line.o) {
      case "put":
        return this.insert(
          { id: line.i, type: line.t, body: line.b, fingerprint: line.f },
          line.at,
        );
      case "old": {
        this.insert({ id: line.i, type: line.t, body: "", fingerprint: line.f }, line.at);
        const { k: resource, v: revision } = line;
        if (resource && revision) Object.assign(this.entries.get(line.i)!, { resource, revision });
        return this.finish(line.i);
      }
      case "claim": {
        const entry = this.entries.get(line.i);
        if (entry) entry.attempts += 1;
        return;
      }
      case "done":
        return this.finish(line.i);
      case "fail":
        return this.setFailed(line.i, line.e, dueAt(line, this.now()));
      case "retry":
        return void this.revive(line.i);
      case "set":
        return void this.settings.set(line.n, line.v);
      default:
        throw new Error("unknown line");
    }
  }

  /** Returns when the line is written, and with `sync` when it survives a power cut. */
  #write(line: Line | undefined, sync: boolean): Promise<void> {
    if (this.#closed) {
      return Promise.reject(new Error(`${this.#path} is closed: stop its workers before`));
    }
    // Otherwise the journal could not be opened any more.
    if (line) requireText("key", line.o === "set" ? line.n : line.i);
    return new Promise((resolve, reject) => {
      const done = (error?: unknown) => (error ? reject(error) : resolve());
      this.#queue.push({ line: line ? text(line) : "", sync, done });
      this.#writing ??= this.#flush();
    });
  }

  /** Writes what waits, as one batch with one sync, until nothing waits. */
  async #flush(): Promise<void> {
    // Lets the requests of this moment join the batch.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0);
      let failed: unknown;
      this.#takenBack = false;
      try {
        await this.#lock.verify();
        // What this batch changes is in memory already.
        await (this.#damaged ? this.#rewrite() : this.#append(batch));
        // After a pause of this process, another one may have the lock, and have read the journal
        // before this was written.
        await this.#lock.verify();
      } catch (error) {
        failed = error ?? new Error("the journal could not be written");
        // A part of the batch may be in the file, or an earlier part may have been lost: a system
        // forgets what it could not write.
        if (!this.#takenBack) this.#damaged = true;
      }
      for (const { done } of batch) done(failed);
      // What failed is taken out of the memory before it is written again. What is written in the
      // meantime waits.
      if (failed) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      else await this.#rewriteIfLarge();
    }
    this.#writing = undefined;
  }

  async #append(batch: Waiting[]): Promise<void> {
    const lines = batch.map(({ line }) => line).filter((line) => line !== "");
    const time = this.#openTime();
    const isStored = lines.length === 0 || time - this.#openTimeStored < STORE_OPEN_TIME_MS;
    if (!isStored) lines.push(text(timeLine(time)));
    let size: number;
    try {
      size = await append(this.#file, lines);
    } catch (error) {
      if (isFull(error)) await this.#takeBack();
      throw error;
    }
    if (batch.some(({ sync }) => sync)) {
      await this.#file.datasync();
      await this.#syncFolder();
    }
    this.#size += size;
    if (!isStored) this.#openTimeStored = time;
  }

  /** A journal that is rewritten needs the space twice, which a disk that was full may not have. */
  async #takeBack(): Promise<void> {
    await this.#lock.verify();
    // If it fails, the journal is rewritten.
    this.#takenBack = await this.#file.truncate(this.#size).then(
      () => true,
      () => false,
    );
  }

  async #rewriteIfLarge(): Promise<void> {
    if (this.#size < REWRITE_BYTES || this.#size < 2 * this.#liveBytes) return;
    await this.#forget();
    // The journal as it is stays in use.
    await this.#rewrite().catch(() => undefined);
  }

  /** Replaces the journal by one that has only what still counts. */
  async #rewrite(): Promise<void> {
    // Each lock has a name of its own for it. A process that takes the lock over removes this file
    // before it reads the journal, so the `rename` of a process without the lock fails.
    const path = `${this.#path}.new-${this.#lock.token}`;
    await unlink(path).catch(() => undefined);
    const time = this.#openTime();
    // Everything that can be missing is opened before the new journal takes its name: afterwards
    // nothing may be written to the old one.
    const folder = this.#folder ?? (await open(dirname(this.#path), "r"));
    let next: FileHandle | undefined;
    let size = 0;
    try {
      next = await open(path, "ax", OWNER_ONLY);
      size = await append(next, this.#contents(time));
      await next.sync();
      await this.#lock.verify();
      await rename(path, this.#path);
    } catch (error) {
      await next?.close().catch(() => undefined);
      await unlink(path).catch(() => undefined);
      if (folder !== this.#folder) await folder.close().catch(() => undefined);
      throw error;
    }
    const old = this.#file;
    this.#file = next;
    this.#folder = folder;
    this.#damaged = false;
    this.#size = this.#liveBytes = size;
    this.#openTimeStored = time;
    await old.close().catch(() => undefined);
    await this.#syncFolder();
  }

  /** Until it has succeeded, nothing new is acknowledged: a power cut could bring the old back. */
  async #syncFolder(): Promise<void> {
    if (!this.#folder) return;
    await this.#folder.sync();
    const folder = this.#folder;
    this.#folder = undefined;
    await folder.close().catch(() => undefined);
  }

  /** What is in memory when this is called, as the lines of a journal. */
  #contents(time: number): Iterable<string> {
    const settings = [...this.settings].filter(([name]) => name !== OPEN_TIME);
    // While the lines are written, events change, and that is written afterwards. Only those that
    // are done do not change any more.
    const entries = Array.from(this.entries.values(), (entry) =>
      entry.state === "done" ? entry : { ...entry },
    );
    const now = this.now();
    return (function* () {
      for (const [n, v] of settings) yield text({ o: "set", n, v });
      yield text(timeLine(time));
      for (const entry of entries) for (const line of describe(entry, now)) yield text(line);
    })();
  }
}

function text(line: Line): string {
  return `${JSON.stringify(line)}\n`;
}

function requireText(what: string, ...values: unknown[]): void {
  for (const value of values) {
    if (typeof value !== "string") throw new TypeError(`${what}: ${typeof value} is not a text`);
  }
}

/** Appends the lines in parts. Returns their size. */
async function append(file: FileHandle, lines: Iterable<string>): Promise<number> {
  let size = 0;
  let parts: Buffer[] = [];
  let waiting = 0;
  const write = async () => {
    if (waiting > 0) await file.appendFile(Buffer.concat(parts, waiting));
    size += waiting;
    [parts, waiting] = [[], 0];
  };
  for (const line of lines) {
    const bytes = Buffer.from(line);
    parts.push(bytes);
    waiting += bytes.length;
    if (waiting >= PART_BYTES) await write();
  }
  await write();
  return size;
}

/**
 * The lines of a file without their ends. The last one is left out if it has none: the process was
 * killed while it wrote, and nobody was told that it was stored.
 */
async function* linesOf(file: FileHandle): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for (let position = 0; ; ) {
    // Not used again: what is left of it may be the begin of a line.
    const buffer = Buffer.allocUnsafe(PART_BYTES);
    const { bytesRead } = await file.read(buffer, 0, PART_BYTES, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    const bytes = buffer.subarray(0, bytesRead);
    let begin = 0;
    for (let end; (end = bytes.indexOf(10, begin)) >= 0; begin = end + 1) {
      yield Buffer.concat([...begun, bytes.subarray(begin, end)]);
      begun = [];
    }
    if (begin < bytesRead) begun.push(bytes.subarray(begin));
  }
}

function isFull(error: unknown): boolean {
  const { code = "" } = error as { code?: string };
  return code === "ENOSPC" || code === "EDQUOT";
}

function timeLine(openTime: number): Line {
  return { o: "set", n: OPEN_TIME, v: String(openTime) };
}

function describe(entry: Entry, now: number): Line[] {
  const { id: i, type: t, fingerprint: f, receivedAt: at, body: b = "" } = entry;
  if (entry.state === "done") {
    const { resource: k, revision: v } = entry;
    return [{ o: "old", i, t, f, at, ...(k !== undefined && v !== undefined && { k, v }) }];
  }
  const lines: Line[] = [{ o: "put", i, t, b, f, at }];
  for (let count = 0; count < entry.attempts; count += 1) lines.push({ o: "claim", i });
  if (entry.error !== undefined) {
    const due = dueTime(entry.state === "dead" ? undefined : entry.dueAt, now);
    lines.push({ o: "fail", i, e: entry.error, ...due });
  }
  return lines;
}

/** With the delay: if the clock is ahead, the time is far in the future when it is right again. */
function dueTime(retryAt: number | undefined, now: number): { r?: number; d?: number } {
  return retryAt === undefined ? {} : { r: retryAt, d: Math.max(retryAt - now, 0) };
}

function dueAt({ r, d = Infinity }: { r?: number; d?: number }, now: number): number | undefined {
  return r === undefined ? undefined : Math.min(r, now + d);
}

/** Journals that were not finished: by a process that was killed, or that has lost its lock. */
async function removeDrafts(path: string): Promise<void> {
  const [folder, prefix] = [dirname(path), `${basename(path)}.`];
  for (const name of await readdir(folder)) {
    // Without a token: of an earlier release.
    if (!name.startsWith(prefix) || !/^new(-\w+)?$/.test(name.slice(prefix.length))) continue;
    await unlink(join(folder, name)).catch((error: { code?: string }) => {
      if (error.code !== "ENOENT") throw error;
    });
  }
}
