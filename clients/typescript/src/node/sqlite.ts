// The inbox in SQLite, and effects that happen exactly once. Works with `DatabaseSync` of
// `node:sqlite` (Node 22.5 and later) and with `better-sqlite3`.

import type { DeadEvent, InboxCounts, InboxStore, NewEvent, QueuedEvent } from "../inbox.js";
import { isSame, steadyClock } from "../inbox.js";

/** Where the clock of the open time ended; see `#openTime`. */
const OPEN_TIME = "store.open_time";
/** How often that is stored. What a kill loses only keeps ids longer. */
const STORE_OPEN_TIME_MS = 10 * 60 * 1000;

/** The longest delay of a retry so far, in milliseconds; see `#limitTimes`. */
const LONGEST_DELAY = "store.longest_delay";
/** That of the `retries` of a worker by default. */
const DEFAULT_LONGEST_MS = 3600 * 1000;
/** As long as ids are remembered. A longer one comes from a clock that was set. */
const MAX_DELAY_MS = 40 * 24 * 3600 * 1000;

/** The part of a synchronous SQLite library that is needed. */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): {
    run(...values: (string | number | null)[]): { changes: number | bigint };
    get(...values: (string | number | null)[]): unknown;
    all(...values: (string | number | null)[]): unknown[];
  };
}

const TABLES = `
  CREATE TABLE IF NOT EXISTS restive_inbox (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT,
    fingerprint TEXT NOT NULL, received_at INTEGER NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL, due_at INTEGER NOT NULL, leased_until INTEGER NOT NULL, error TEXT);
  CREATE INDEX IF NOT EXISTS restive_inbox_due ON restive_inbox (due_at, number)
    WHERE state = 'pending';
  CREATE TABLE IF NOT EXISTS restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);`;

export class SqliteStore implements InboxStore {
  readonly #db: SqliteDatabase;
  readonly #isShared: boolean;
  readonly #clock = steadyClock();
  #longestDelay = DEFAULT_LONGEST_MS;
  readonly #opened = performance.now();
  #openedAt: number;

  /**
   * `shared`: other processes work on this inbox too. Otherwise the events that an earlier process
   * had taken when it was killed are due at once, not when their lease ends.
   */
  constructor(db: SqliteDatabase, { shared = false } = {}) {
    this.#db = db;
    this.#isShared = shared;
    // FULL: an acknowledged event survives a power cut.
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 4000;");
    db.exec(TABLES);
    if (!shared) db.exec("UPDATE restive_inbox SET leased_until = 0 WHERE leased_until > 0");
    this.#openedAt = this.#startClock();
    this.#limitTimes(this.now(), 0);
  }

  /** Processes that share the inbox must have the same clock, so it is that of the machine. */
  now(): number {
    return this.#isShared ? Date.now() : this.#clock();
  }

  /**
   * A time that is later than the longest delay was written while the clock was ahead. It would
   * keep its event until then.
   */
  #limitTimes(now: number, leaseMs: number): void {
    const row = this.#db.prepare("SELECT value FROM restive_settings WHERE name = ?");
    const stored = Number((row.get(LONGEST_DELAY) as { value: string } | undefined)?.value) || 0;
    this.#longestDelay = Math.max(this.#longestDelay, Math.min(stored, MAX_DELAY_MS));
    const limit = now + Math.max(this.#longestDelay, leaseMs);
    this.#db
      .prepare(
        `UPDATE restive_inbox SET due_at = min(due_at, ?), leased_until = min(leased_until, ?)
       WHERE state = 'pending' AND (due_at > ? OR leased_until > ?)`,
      )
      .run(now, now + leaseMs, limit, limit);
  }

  /** Other processes and later ones must know it. */
  #storeDelay(delay: number): void {
    if (delay <= this.#longestDelay || delay > MAX_DELAY_MS) return;
    this.#longestDelay = delay;
    this.#store(LONGEST_DELAY, delay);
  }

  #startClock(): number {
    const stored = this.#storedTime();
    if (stored > 0) return stored;
    const newest = this.#db.prepare("SELECT max(received_at) AS at FROM restive_inbox").get();
    const begin = Math.min(Date.now(), (newest as { at: number | null }).at ?? Infinity);
    // Received by a release that used the clock of the machine, which was ahead: their age counts
    // from here.
    this.#db
      .prepare("UPDATE restive_inbox SET received_at = ? WHERE received_at > ?")
      .run(begin, begin);
    this.#storeTime(begin);
    return begin;
  }

  #storedTime(): number {
    const row = this.#db.prepare("SELECT value FROM restive_settings WHERE name = ?");
    return Number((row.get(OPEN_TIME) as { value: string } | undefined)?.value) || 0;
  }

  #storeTime(time: number): void {
    this.#store(OPEN_TIME, time);
  }

  /** Unless another process has stored a higher value. */
  #store(name: string, value: number): void {
    this.#db
      .prepare(
        `INSERT INTO restive_settings (name, value) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET value = excluded.value
       WHERE CAST(value AS INTEGER) < CAST(excluded.value AS INTEGER)`,
      )
      .run(name, String(Math.floor(value)));
  }

  /**
   * A clock that counts only while the store is open, for the age of ids. A clock of the machine
   * that is or was wrong must not make the store forget them. If several processes have the store
   * open, the clock that is ahead counts for all.
   */
  #openTime(): number {
    const stored = this.#storedTime();
    const own = Math.floor(this.#openedAt + performance.now() - this.#opened);
    if (stored > own) this.#openedAt += stored - own;
    else if (own - stored >= STORE_OPEN_TIME_MS) this.#storeTime(own);
    return Math.max(stored, own);
  }

  async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    const { id, type, body, fingerprint } = event;
    const insert = this.#db.prepare(
      `INSERT INTO restive_inbox
       (id, type, body, fingerprint, received_at, state, attempts, due_at, leased_until)
       VALUES (?, ?, ?, ?, ?, 'pending', 0, 0, 0) ON CONFLICT (id) DO NOTHING`,
    );
    const { changes } = insert.run(id, type, body, fingerprint, this.#openTime());
    if (Number(changes) > 0) return "stored";
    const find = this.#db.prepare("SELECT fingerprint FROM restive_inbox WHERE id = ?");
    const known = find.get(id) as { fingerprint: string } | undefined;
    return known && isSame(known.fingerprint, fingerprint) ? "known" : "different";
  }

  async claim(now: number, leaseMs: number): Promise<QueuedEvent | undefined> {
    // The time in which a worker waits counts, also if the process is killed.
    this.#openTime();
    const row = this.#db
      .prepare(
        `UPDATE restive_inbox SET leased_until = ?, attempts = attempts + 1 WHERE number = (
         SELECT number FROM restive_inbox
         WHERE state = 'pending' AND due_at <= ? AND leased_until <= ?
         ORDER BY due_at, number LIMIT 1)
       RETURNING id, type, body, attempts`,
      )
      .get(now + leaseMs, now, now) as
      { id: string; type: string; body: string; attempts: number } | undefined;
    if (!row && this.#isShared) this.#limitTimes(now, leaseMs);
    return row && { id: row.id, type: row.type, body: row.body, attempt: row.attempts };
  }

  async complete(id: string): Promise<void> {
    this.#db
      .prepare(
        `UPDATE restive_inbox SET state = 'done', body = NULL, leased_until = 0, error = NULL
       WHERE id = ?`,
      )
      .run(id);
  }

  async fail(id: string, error: string, retryAt: number | undefined): Promise<void> {
    if (retryAt !== undefined) this.#storeDelay(retryAt - this.now());
    this.#db
      .prepare(
        `UPDATE restive_inbox SET state = ?, due_at = ?, leased_until = 0, error = ?
       WHERE id = ? AND state = 'pending'`,
      )
      .run(retryAt === undefined ? "dead" : "pending", retryAt ?? 0, error, id);
  }

  async nextDue(): Promise<number | undefined> {
    const row = this.#db
      .prepare(
        "SELECT min(max(due_at, leased_until)) AS at FROM restive_inbox WHERE state = 'pending'",
      )
      .get() as { at: number | null };
    return row.at ?? undefined;
  }

  async counts(): Promise<InboxCounts> {
    const counts = { pending: 0, done: 0, dead: 0 };
    const rows = this.#db
      .prepare("SELECT state, count(*) AS count FROM restive_inbox GROUP BY state")
      .all() as { state: keyof InboxCounts; count: number }[];
    for (const { state, count } of rows) counts[state] = count;
    return counts;
  }

  async dead(limit: number): Promise<DeadEvent[]> {
    const rows = this.#db
      .prepare(
        `SELECT id, type, attempts, error FROM restive_inbox WHERE state = 'dead'
         ORDER BY number LIMIT ?`,
      )
      .all(limit) as DeadEvent[];
    return rows.map(({ id, type, attempts, error }) => ({ id, type, attempts, error }));
  }

  async retry(id: string): Promise<boolean> {
    const { changes } = this.#db
      .prepare(
        `UPDATE restive_inbox SET state = 'pending', attempts = 0, due_at = 0
       WHERE id = ? AND state = 'dead'`,
      )
      .run(id);
    return Number(changes) > 0;
  }

  /** Compares ages, not times: the clock of the machine may have been wrong when they arrived. */
  async prune(before: number): Promise<number> {
    const limit = this.#openTime() - (Date.now() - before);
    const { changes } = this.#db
      .prepare("DELETE FROM restive_inbox WHERE state = 'done' AND received_at < ?")
      .run(limit);
    return Number(changes);
  }

  async setting(name: string): Promise<string | undefined> {
    const row = this.#db.prepare("SELECT value FROM restive_settings WHERE name = ?").get(name);
    return (row as { value: string } | undefined)?.value;
  }

  async setSetting(name: string, value: string): Promise<void> {
    this.#db
      .prepare(
        `INSERT INTO restive_settings (name, value) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
      )
      .run(name, value);
  }
}

/**
 * Runs the effect in a transaction of your own database, together with the id of the event: however
 * often the event is handled, the effect happens once. Returns false if it had happened before.
 */
export function applyOnce(
  db: SqliteDatabase,
  eventId: string,
  effect: (db: SqliteDatabase) => void,
): boolean {
  db.exec("CREATE TABLE IF NOT EXISTS restive_applied (id TEXT PRIMARY KEY) WITHOUT ROWID");
  db.exec("BEGIN IMMEDIATE");
  try {
    const insert = db.prepare("INSERT INTO restive_applied (id) VALUES (?) ON CONFLICT DO NOTHING");
    const isNew = Number(insert.run(eventId).changes) > 0;
    const result: unknown = isNew ? effect(db) : undefined;
    if (result instanceof Promise) throw new TypeError("the effect must not be asynchronous");
    db.exec("COMMIT");
    return isNew;
  } catch (error) {
    db.exec("ROLLBACK");
    throw error;
  }
}
