// The lock of a store in SQLite: one process has it open, or all have it open with `shared`. It is
// the lock of a second, empty database beside the file, so it ends with the process, also of one
// that is killed, and holds in all containers that see the file.

import { closeSync, openSync } from "node:fs";

import type { SqliteDatabase } from "./sqlite.js";

interface Connection extends SqliteDatabase {
  close(): unknown;
}

/**
 * Undefined without a file, or if the object is no connection that can open another file: then
 * nothing keeps a second process from it.
 */
export function guard(db: SqliteDatabase, shared: boolean): Connection | undefined {
  const list = db.prepare("SELECT file FROM pragma_database_list WHERE name = 'main'");
  const { file = "" } = (list.get() ?? {}) as { file?: string | null };
  const Library = db.constructor as new (path: string) => Connection;
  if (!file || typeof Library.prototype?.exec !== "function") return undefined;
  create(`${file}.lock`);
  const held = new Library(`${file}.lock`);
  try {
    held.exec("PRAGMA busy_timeout = 0");
    // A transaction that reads has the shared lock as long as it lasts.
    held.exec(shared ? "BEGIN; SELECT count(*) FROM sqlite_master" : "BEGIN EXCLUSIVE");
    return held;
  } catch (error) {
    held.close();
    if (!/locked|busy/i.test(String((error as Error).message))) throw error;
    throw new Error(
      `${file} is open already, in another process or in this one. If several processes work on ` +
        "this inbox, all of them must open it with { shared: true }. Otherwise close it there first",
    );
  }
}

/** For its owner only: a process that can read the file can hold the lock. */
function create(path: string): void {
  try {
    // Not opened if it is there: by closing it, this process would lose a lock that it has.
    closeSync(openSync(path, "wx", 0o600));
  } catch {
    // What fails here, except that it is there, fails again in SQLite, which says why.
  }
}
