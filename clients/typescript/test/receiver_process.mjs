// A receiver as a process of its own, for tests that kill it:
//
//     receiver_process.mjs PORT FOLDER STORE URL KEY SECRET
//
// Each event inserts one row into FOLDER/app.db. The table has no unique column, so an effect that
// happened twice would be seen.
import { createServer } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

import { Client } from "restive-client";
import { FileStore, SqliteStore, applyOnce, nodeHandler } from "restive-client/node";
import { Receiver, Worker, reconcileEvery } from "restive-client/receiver";

const [port, folder, kind, url, key, secret] = process.argv.slice(2);
const db = new DatabaseSync(join(folder, "app.db"));
db.exec("PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 10000");
db.exec("CREATE TABLE IF NOT EXISTS effects (event TEXT)");

const store =
  kind === "sqlite"
    ? new SqliteStore(new DatabaseSync(join(folder, "inbox.db")))
    : await FileStore.open(join(folder, "inbox.journal"));

const effect = (event) => (db) => void db.prepare("INSERT INTO effects VALUES (?)").run(event.id);
new Worker(store, (event) => void applyOnce(db, event.id, effect(event)), {
  concurrency: 2,
}).start();

const client = new Client({ url, key });
const types = ["book.created"];
const signal = new AbortController().signal;
// Errors are expected: the provider is killed too.
reconcileEvery(2, { client, store, types, signal });

const receiver = new Receiver({ secrets: secret, store });
createServer(nodeHandler(receiver)).listen(Number(port), "127.0.0.1", () =>
  console.log("listening"),
);
