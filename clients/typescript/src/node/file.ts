// The inbox in one file, for Node without SQLite: a journal of JSON lines, read at the start. All
// ids are in memory, some 200 bytes each; with more than a million a month, use `SqliteStore`.

import { open, readFile, rename, unlink, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";

import { MemoryStore, REMEMBER_MS, type Entry, type NewEvent } from "../inbox.js";
import { lock, type Lock } from "./lock.js";

/** One change. `put` and `set` are synced; the others may be repeated after a power cut. */
type Line =
  | { o: "put"; i: string; t: string; b: string; f: string; at: number }
  | { o: "claim"; i: string }
  | { o: "done"; i: string }
  | { o: "fail"; i: string; e: string; r?: number }
  | { o: "retry"; i: string }
  | { o: "set"; n: string; v: string }
  /** A finished event, after the journal was rewritten. */
  | { o: "old"; i: string; t: string; f: string; at: number };

interface Waiting {
  line: string;
  sync: boolean;
  done: (error?: unknown) => void;
}

/** The journal is rewritten when it has this size and is mostly out of date. */
const REWRITE_BYTES = 16 * 1024 * 1024;
/** After a failed write: a full disk must not be tried a thousand times a second. */
const PAUSE_MS = 1000;
/** Events contain data of customers. */
const OWNER_ONLY = 0o600;
/** Where the clock of the open time ended; see `#openTime`. */
const OPEN_TIME = "store.open_time";

export class FileStore extends MemoryStore {
  readonly #path: string;
  readonly #lock: Lock;
  #file: FileHandle;
  /** The folder, while it does not durably name the new journal. */
  #folder: FileHandle | undefined;
  #size = 0;
  #liveBytes = 0;
  #queue: Waiting[] = [];
  #writing: Promise<void> | undefined;
  /** A write failed, so the end of the file is unknown: it is rewritten before the next write. */
  #damaged = false;
  #closed: Promise<void> | undefined;
  #openedAt = 0;
  readonly #opened = performance.now();

  private constructor(path: string, file: FileHandle, held: Lock) {
    super();
    this.#path = path;
    this.#file = file;
    this.#lock = held;
  }

  /** Opens or creates the journal. Only one process may have it open. */
  static async open(path: string): Promise<FileStore> {
    const held = await lock(`${path}.lock`);
    let store: FileStore | undefined;
    try {
      store = new FileStore(path, await open(path, "a+", OWNER_ONLY), held);
      await store.#load();
      return store;
    } catch (error) {
      if (store) await store.#closeFiles();
      await held.release();
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
    const time = { o: "set", n: OPEN_TIME, v: String(this.#openTime()) } as const;
    await this.#write(time, true).catch(() => undefined);
    // Not earlier: this process may write as long as it holds the lock, and no longer.
    while (this.#writing) await this.#writing;
    await this.#closeFiles();
    await this.#lock.release();
  }

  async #closeFiles(): Promise<void> {
    await this.#file.close();
    await this.#folder?.close();
    this.#folder = undefined;
  }

  /**
   * A clock that counts only while the store is open, for the age of ids. A clock of the machine
   * that is wrong by more than `REMEMBER_MS` must not make the store forget them.
   */
  #openTime(): number {
    return Math.floor(this.#openedAt + performance.now() - this.#opened);
  }

  override async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    const known = this.check(event);
    if (known) {
      // Perhaps another request has just brought it, and it is not durable yet.
      await this.#write(undefined, true);
      return this.entries.has(event.id) ? known : this.put(event);
    }
    const at = Date.now();
    const { id, type, body, fingerprint } = event;
    this.remember(event, at);
    try {
      await this.#write({ o: "put", i: id, t: type, b: body, f: fingerprint, at }, true);
    } catch (error) {
      this.entries.delete(id);
      throw error;
    }
    // Not earlier: an event that is refused is sent again, so nobody may have handled it.
    this.enqueue(id);
    return "stored";
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
    const at = retryAt === undefined ? {} : { r: retryAt };
    await this.#write({ o: "fail", i: id, e: error, ...at }, false);
  }

  override async retry(id: string): Promise<boolean> {
    const found = this.revive(id);
    if (found) await this.#write({ o: "retry", i: id }, true);
    return found;
  }

  override async setSetting(name: string, value: string): Promise<void> {
    await super.setSetting(name, value);
    await this.#write({ o: "set", n: name, v: value }, true);
  }

  async #load(): Promise<void> {
    const bytes = await readFile(this.#path);
    // The last line is incomplete if the process was killed while it wrote; nobody was told that
    // it was stored.
    const end = bytes.lastIndexOf(10) + 1;
    const lines = bytes.subarray(0, end).toString("utf8").split("\n");
    lines.pop();
    lines.forEach((line, index) => {
      try {
        this.#apply(JSON.parse(line) as Line);
      } catch (cause) {
        throw new Error(`${this.#path}:${index + 1}: not a line of an inbox journal`, { cause });
      }
    });
    let newest = 0;
    for (const { receivedAt } of this.entries.values()) newest = Math.max(newest, receivedAt);
    const now = Date.now();
    this.#openedAt = Math.min(now, Number(this.settings.get(OPEN_TIME)) || newest || now);
    await this.prune(this.#openTime() - REMEMBER_MS);
    await this.#rewrite();
  }

  #apply(line: Line): void {
    switch (line.o) {
      case "put":
        return this.insert(
          { id: line.i, type: line.t, body: line.b, fingerprint: line.f },
          line.at,
        );
      case "old": {
        this.insert({ id: line.i, type: line.t, body: "", fingerprint: line.f }, line.at);
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
        return this.setFailed(line.i, line.e, line.r);
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
    return new Promise((resolve, reject) => {
      const done = (error?: unknown) => (error ? reject(error) : resolve());
      this.#queue.push({ line: line ? `${JSON.stringify(line)}\n` : "", sync, done });
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
      try {
        await this.#lock.verify();
        // What this batch changes is in memory already.
        await (this.#damaged ? this.#rewrite() : this.#append(batch));
      } catch (error) {
        failed = error ?? new Error("the journal could not be written");
        // A part of the batch may be in the file, or an earlier part may have been lost: a system
        // forgets what it could not write.
        this.#damaged = true;
      }
      for (const { done } of batch) done(failed);
      // What failed is taken out of the memory before it is written again.
      if (failed) await new Promise((resolve) => setImmediate(resolve));
      else await this.#rewriteIfLarge();
    }
    this.#writing = undefined;
  }

  async #append(batch: Waiting[]): Promise<void> {
    const bytes = Buffer.from(batch.map(({ line }) => line).join(""));
    if (bytes.length > 0) await this.#file.appendFile(bytes);
    if (batch.some(({ sync }) => sync)) {
      await this.#file.datasync();
      await this.#syncFolder();
    }
    this.#size += bytes.length;
  }

  async #rewriteIfLarge(): Promise<void> {
    if (this.#size < REWRITE_BYTES || this.#size < 2 * this.#liveBytes) return;
    await this.prune(this.#openTime() - REMEMBER_MS);
    // The journal as it is stays in use.
    await this.#rewrite().catch(() => undefined);
  }

  /** Replaces the journal by one that has only what still counts. */
  async #rewrite(): Promise<void> {
    const path = `${this.#path}.new`;
    await unlink(path).catch(() => undefined);
    // Everything that can be missing is opened before the new journal takes its name: afterwards
    // nothing may be written to the old one.
    const folder = this.#folder ?? (await open(dirname(this.#path), "r"));
    let next: FileHandle | undefined;
    let size = 0;
    try {
      next = await open(path, "ax", OWNER_ONLY);
      const bytes = this.#contents();
      size = bytes.length;
      await next.appendFile(bytes);
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

  #contents(): Buffer {
    let text = "";
    const add = (line: Line) => (text += `${JSON.stringify(line)}\n`);
    for (const [n, v] of this.settings) add({ o: "set", n, v });
    add({ o: "set", n: OPEN_TIME, v: String(this.#openTime()) });
    for (const entry of this.entries.values()) this.#describe(entry).forEach(add);
    return Buffer.from(text);
  }

  #describe(entry: Entry): Line[] {
    const { id: i, type: t, fingerprint: f, receivedAt: at, body: b = "" } = entry;
    if (entry.state === "done") return [{ o: "old", i, t, f, at }];
    const lines: Line[] = [{ o: "put", i, t, b, f, at }];
    for (let count = 0; count < entry.attempts; count += 1) lines.push({ o: "claim", i });
    if (entry.error !== undefined) {
      const due = entry.state === "dead" ? {} : { r: entry.dueAt };
      lines.push({ o: "fail", i, e: entry.error, ...due });
    }
    return lines;
  }
}
