// The stores of this platform, for tests that all of them must pass.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { FileStore, SqliteStore } from "restive-client/node";
import { MemoryStore } from "restive-client/receiver";

export const folder = () => mkdtempSync(join(tmpdir(), "restive-inbox-"));

/** Node 20 has none. */
export const sqlite = await import("node:sqlite").catch(() => undefined);

/** The stores of this platform. */
export const STORES = {
  memory: async () => new MemoryStore(),
  file: async (place = folder()) => FileStore.open(join(place, "inbox.journal")),
  ...(sqlite && {
    sqlite: async (place = folder()) =>
      new SqliteStore(new sqlite.DatabaseSync(join(place, "inbox.db"))),
  }),
};

/** Runs the action with clocks that are so many days ahead: of the machine, and of the process. */
export async function ahead(days, passed, action) {
  const [time, monotonic] = [Date.now, performance.now];
  Date.now = () => time() + days * 86_400_000;
  performance.now = () => monotonic.call(performance) + passed * 86_400_000;
  try {
    return await action();
  } finally {
    Date.now = time;
    performance.now = monotonic;
  }
}
