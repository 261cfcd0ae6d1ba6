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
