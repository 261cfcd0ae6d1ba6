// The inbox in SQLite, and effects that happen exactly once. Works with `DatabaseSync` of
// `node:sqlite` (Node 22.5 and later) and with `better-sqlite3`.

import type { DeadEvent, InboxCounts, InboxStore, NewEvent, QueuedEvent } from "../inbox.js";
import { isSame, steadyClock } from "../inbox.js";
import { isBefore, orderOf } from "../order.js";
import { pause } from "../retry.js";
import { guard } from "./guard.js";

/** Where the clock of the open time ended; see `#openTime`. */
const OPEN_TIME = "store.open_time";
/** How often that is stored. What a kill loses only keeps ids longer. */
const STORE_OPEN_TIME_MS = 10 * 60 * 1000;
/** Events that `prune` removes at once: some milliseconds, in which nothing else is stored. */
const PRUNE_SLICE = 500;
/** And then lets others write, who only look now and then whether they may. */
const PRUNE_PAUSE_MS = 10;

/** The longest delay of a retry so far, in milliseconds; see `#limitTimes`. */
const LONGEST_DELAY = "store.longest_delay";
/** That of the `retries` of a worker by default. */
const DEFAULT_LONGEST_MS = 3600 * 1000;
/** As long as ids are remembered. A longer one comes from a clock that was set. */
const MAX_DELAY_MS = 40 * 24 * 3600 * 1000;
/** How often the idle workers of a shared store look for times that a wrong clock has written. */
const LIMIT_MS = 60 * 1000;

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
  CREATE TABLE IF NOT EXISTS restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);`;

/**
 * The newest processed state of each resource. A trigger, so that it changes with the state of the
 * event. A revision of another kind replaces it: the provider has changed its format.
 */
const ORDER = `
  DROP INDEX IF EXISTS restive_inbox_due;
  CREATE INDEX IF NOT EXISTS restive_inbox_next ON restive_inbox (due_at, number, resource)
    WHERE state = 'pending';
  CREATE INDEX IF NOT EXISTS restive_inbox_leased ON restive_inbox (resource)
    WHERE leased_until > 0;
  CREATE INDEX IF NOT EXISTS restive_inbox_old ON restive_inbox (received_at)
    WHERE state = 'done';
  CREATE TABLE IF NOT EXISTS restive_newest (
    resource TEXT PRIMARY KEY, revision TEXT NOT NULL, received_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS restive_newest_old ON restive_newest (received_at);
  CREATE TRIGGER IF NOT EXISTS restive_inbox_done AFTER UPDATE OF state ON restive_inbox
    WHEN new.state = 'done' AND new.resource IS NOT NULL AND new.revision IS NOT NULL
  BEGIN
    INSERT INTO restive_newest VALUES (new.resource, new.revision, new.received_at)
    ON CONFLICT (resource) DO UPDATE SET
      revision = excluded.revision, received_at = excluded.received_at
    WHERE substr(restive_newest.revision, 1, 1) <> substr(excluded.revision, 1, 1)
      OR restive_newest.revision <= excluded.revision;
  END;`;

/**
 * The first event that is due and whose resource has none in progress. Those of a busy resource are
 * passed by the index alone, however many they are. New events are due at 0, so that no clock hides
 * them; the second parameter can leave them out. The `+`: for a column of a row that is returned,
 * SQLite does not use the primary key, and reads all of `restive_newest`.
 */
const CLAIM = `
  UPDATE restive_inbox SET leased_until = ?, attempts = attempts + 1 WHERE number = (
    SELECT number FROM restive_inbox INDEXED BY restive_inbox_next
    WHERE state = 'pending' AND due_at > ? AND due_at <= ?
      AND (resource IS NULL OR resource NOT IN (
        SELECT resource FROM restive_inbox INDEXED BY restive_inbox_leased
        WHERE leased_until > 0 AND leased_until > ? AND state = 'pending'
          AND resource IS NOT NULL))
      AND leased_until <= ?
    ORDER BY due_at, number LIMIT 1)
  RETURNING id, type, body, attempts, revision, (
    SELECT newest.revision FROM restive_newest AS newest
    WHERE newest.resource = +restive_inbox.resource) AS newest`;

/**
 * An event waits for the one of its resource that is in progress, so those in progress are enough,
 * and the first one whose resource has none.
 */
const NEXT_DUE = `
  SELECT min(at) AS at FROM (
    SELECT min(max(due_at, leased_until)) AS at FROM restive_inbox INDEXED BY restive_inbox_leased
    WHERE leased_until > 0 AND state = 'pending'
    UNION ALL SELECT at FROM (
      SELECT due_at AS at FROM restive_inbox INDEXED BY restive_inbox_next
      WHERE state = 'pending' AND (resource IS NULL OR resource NOT IN (
        SELECT resource FROM restive_inbox INDEXED BY restive_inbox_leased
        WHERE leased_until > 0 AND state = 'pending' AND resource IS NOT NULL))
        AND leased_until = 0
      ORDER BY due_at, number LIMIT 1))`;

/** Whether an event is due or leased later than it can be. */
const IS_LATE = `
  SELECT EXISTS (SELECT 1 FROM restive_inbox INDEXED BY restive_inbox_next
      WHERE state = 'pending' AND due_at > ?)
    OR EXISTS (SELECT 1 FROM restive_inbox INDEXED BY restive_inbox_leased
      WHERE leased_until > 0 AND leased_until > ? AND state = 'pending') AS late`;

const PRUNE = `
  DELETE FROM restive_inbox WHERE number IN (
    SELECT number FROM restive_inbox INDEXED BY restive_inbox_old
    WHERE state = 'done' AND received_at < ? LIMIT ?)`;
const PRUNE_NEWEST = `
  DELETE FROM restive_newest WHERE resource IN (
    SELECT resource FROM restive_newest INDEXED BY restive_newest_old
    WHERE received_at < ? LIMIT ?)`;

interface Row {
  id: string;
  type: string;
  body: string;
  attempts: number;
  revision: string | null;
  newest: string | null;
}

export class SqliteStore implements InboxStore {
  /** Undefined when the store is closed. */
  #connection: SqliteDatabase | undefined;
  #guard: ReturnType<typeof guard>;
  readonly #isShared: boolean;
  readonly #clock = steadyClock();
  #longestDelay = DEFAULT_LONGEST_MS;
  #limitAt = 0;
  #isTurnOfFailed = false;
  readonly #opened = performance.now();
  #openedAt: number;

  /**
   * `shared`: other processes work on this inbox too. Otherwise the events that an earlier process
   * had taken when it was killed are due at once, not when their lease ends, and a second store of
   * the same file throws an error. If `db` is an object of your own around a connection, nothing
   * notices a second process.
   */
  constructor(db: SqliteDatabase, { shared = false } = {}) {
    this.#connection = db;
    this.#isShared = shared;
    this.#guard = guard(db, shared);
    try {
      this.#openedAt = this.#prepare();
    } catch (error) {
      this.#guard?.close();
      throw error;
    }
  }

  /** Returns where the clock of the open time begins. */
  #prepare(): number {
    const db = this.#db;
    // FULL: an acknowledged event survives a power cut.
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 4000;");
    db.exec(TABLES);
    this.#addOrder();
    const taken = "UPDATE restive_inbox SET leased_until = 0 WHERE leased_until > 0";
    if (!this.#isShared) db.exec(taken);
    const openedAt = this.#startClock();
    this.#limitTimes(this.now(), 0);
    return openedAt;
  }

  /** Lets others open the inbox. Stop the workers first. The connection stays open. */
  async close(): Promise<void> {
    if (!this.#connection) return;
    try {
      this.#storeTime(this.#ownTime());
    } catch {
      // Then ids are kept longer.
    }
    this.#connection = undefined;
    this.#guard?.close();
  }

  get #db(): SqliteDatabase {
    if (!this.#connection) throw new Error("the store is closed: stop its workers before");
    return this.#connection;
  }

  /** Tables of earlier releases have no resources. Events that wait get theirs. */
  #addOrder(): void {
    const columns = "SELECT 1 FROM pragma_table_info('restive_inbox') WHERE name = 'revision'";
    const db = this.#db;
    // Usually it is there. Then nothing is locked: another process may be writing.
    if (!db.prepare(columns).get()) {
      db.exec("BEGIN IMMEDIATE");
      try {
        if (!db.prepare(columns).get()) this.#addColumns();
        db.exec("COMMIT");
      } catch (error) {
        db.exec("ROLLBACK");
        throw error;
      }
    }
    db.exec(ORDER);
  }

  #addColumns(): void {
    const db = this.#db;
    for (const name of ["resource", "revision"]) {
      db.exec(`ALTER TABLE restive_inbox ADD COLUMN ${name} TEXT`);
    }
    const rows = db.prepare("SELECT number, body FROM restive_inbox WHERE body IS NOT NULL").all();
    const set = db.prepare("UPDATE restive_inbox SET resource = ?, revision = ? WHERE number = ?");
    for (const { number, body } of rows as { number: number; body: string }[]) {
      const { resource = null, revision = null } = orderOf(body);
      set.run(resource, revision, number);
    }
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
    // Usually there is none. Then nothing is locked, and not all events are read.
    if (!(this.#db.prepare(IS_LATE).get(limit, limit) as { late: number }).late) return;
    this.#db
      .prepare(
        `UPDATE restive_inbox SET due_at = min(due_at, ?), leased_until = min(leased_until, ?)
       WHERE state = 'pending' AND (due_at > ? OR leased_until > ?)`,
      )
      .run(now, now + leaseMs, limit, limit);
  }

  /** In a store that is not shared, all times are of its own clock. */
  #limitNowAndThen(now: number, leaseMs: number): void {
    if (!this.#isShared || performance.now() < this.#limitAt) return;
    this.#limitTimes(now, leaseMs);
    this.#limitAt = performance.now() + LIMIT_MS;
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
    const own = this.#ownTime();
    if (stored > own) this.#openedAt += stored - own;
    else if (own - stored >= STORE_OPEN_TIME_MS) this.#storeTime(own);
    return Math.max(stored, own);
  }

  #ownTime(): number {
    return Math.floor(this.#openedAt + performance.now() - this.#opened);
  }

  async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    const { id, type, body, fingerprint } = event;
    const insert = this.#db.prepare(
      `INSERT INTO restive_inbox
       (id, type, body, fingerprint, received_at, state, attempts, due_at, leased_until,
        resource, revision)
       VALUES (?, ?, ?, ?, ?, 'pending', 0, 0, 0, ?, ?) ON CONFLICT (id) DO NOTHING`,
    );
    const { resource = null, revision = null } = orderOf(body);
    const at = this.#openTime();
    const { changes } = insert.run(id, type, body, fingerprint, at, resource, revision);
    if (Number(changes) > 0) return "stored";
    const find = this.#db.prepare("SELECT fingerprint FROM restive_inbox WHERE id = ?");
    const known = find.get(id) as { fingerprint: string } | undefined;
    return known && isSame(known.fingerprint, fingerprint) ? "known" : "different";
  }

  async claim(now: number, leaseMs: number): Promise<QueuedEvent | undefined> {
    // The time in which a worker waits counts, also if the process is killed.
    this.#openTime();
    const row = this.#claim(now, leaseMs);
    if (!row) {
      this.#limitNowAndThen(now, leaseMs);
      return undefined;
    }
    const { id, type, body, attempts: attempt } = row;
    const stale = isBefore(row.revision ?? undefined, row.newest ?? undefined);
    return { id, type, body, attempt, stale };
  }

  /**
   * By the due time, new events first. But after a new one, a failed one has its turn: otherwise it
   * would wait as long as new ones come.
   */
  #claim(now: number, leaseMs: number): Row | undefined {
    const claim = this.#db.prepare(CLAIM);
    const after = (due: number) => claim.get(now + leaseMs, due, now, now, now) as Row | undefined;
    const row = (this.#isTurnOfFailed ? after(0) : undefined) ?? after(-1);
    this.#isTurnOfFailed = row?.attempts === 1;
    return row;
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
    const row = this.#db.prepare(NEXT_DUE).get() as { at: number | null };
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
    const removed = await this.#remove(PRUNE, limit);
    await this.#remove(PRUNE_NEWEST, limit);
    return removed;
  }

  async #remove(statement: string, limit: number): Promise<number> {
    for (let removed = 0; ; ) {
      const { changes } = this.#db.prepare(statement).run(limit, PRUNE_SLICE);
      removed += Number(changes);
      if (Number(changes) < PRUNE_SLICE) return removed;
      await pause(PRUNE_PAUSE_MS);
    }
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
