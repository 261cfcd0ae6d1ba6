// The inbox in SQLite, and effects that happen exactly once. Works with `DatabaseSync` of
// `node:sqlite` (Node 22.5 and later) and with `better-sqlite3`.

import type { DeadEvent, InboxCounts, InboxStore, NewEvent, QueuedEvent } from "../inbox.js";
import { isSame } from "../inbox.js";

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

  /**
   * `shared`: other processes work on this inbox too. Otherwise the events that an earlier process
   * had taken when it was killed are due at once, not when their lease ends.
   */
  constructor(db: SqliteDatabase, { shared = false } = {}) {
    this.#db = db;
    // FULL: an acknowledged event survives a power cut.
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 4000;");
    db.exec(TABLES);
    if (!shared) db.exec("UPDATE restive_inbox SET leased_until = 0 WHERE leased_until > 0");
  }

  async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    const { id, type, body, fingerprint } = event;
    const insert = this.#db.prepare(
      `INSERT INTO restive_inbox
       (id, type, body, fingerprint, received_at, state, attempts, due_at, leased_until)
       VALUES (?, ?, ?, ?, ?, 'pending', 0, 0, 0) ON CONFLICT (id) DO NOTHING`,
    );
    if (Number(insert.run(id, type, body, fingerprint, Date.now()).changes) > 0) return "stored";
    const find = this.#db.prepare("SELECT fingerprint FROM restive_inbox WHERE id = ?");
    const known = find.get(id) as { fingerprint: string } | undefined;
    return known && isSame(known.fingerprint, fingerprint) ? "known" : "different";
  }

  async claim(now: number, leaseMs: number): Promise<QueuedEvent | undefined> {
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

  async prune(before: number): Promise<number> {
    const { changes } = this.#db
      .prepare("DELETE FROM restive_inbox WHERE state = 'done' AND received_at < ?")
      .run(before);
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
