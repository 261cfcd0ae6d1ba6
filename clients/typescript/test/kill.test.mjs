// Provider and receiver are killed, and the network between them is cut, at random while events are
// created: the effect of each event happens exactly once, and none is missing after reconciliation.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { Client } from "restive-client";

import { KEY, Server, brokenNetwork, eventually } from "./harness.mjs";

const KILLS = Number(process.env.RESTIVE_KILLS ?? 5);
const sqlite = await import("node:sqlite").catch(() => undefined);

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

class ReceiverProcess {
  constructor(...settings) {
    this.settings = settings;
  }
  async start() {
    const program = join(import.meta.dirname, "receiver_process.mjs");
    const stdio = ["ignore", "pipe", "inherit"];
    this.child = spawn(process.execPath, [program, ...this.settings.map(String)], { stdio });
    await new Promise((resolve, reject) => {
      this.child.stdout.once("data", resolve);
      this.child.once("exit", (code) => reject(new Error(`the receiver ended with ${code}`)));
    });
  }
  async kill() {
    this.child.removeAllListeners("exit");
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
  }
}

/** Creates books until it is stopped; a request that fails is repeated with the same key. */
async function write(client, state) {
  while (!state.stop) {
    const title = `Book ${(state.sent += 1)}`;
    const idempotencyKey = crypto.randomUUID();
    for (;;) {
      try {
        await client.post("/v1/books", { title, author: "A" }, { idempotencyKey, timeout: 5000 });
        break;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function exactlyOnce(kind) {
  const server = await Server.start();
  const client = new Client({ url: server.url, key: KEY });
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "restive-receiver-"));
  const networks = [await brokenNetwork(port), await brokenNetwork(new URL(server.url).port)];
  const [hook, api] = networks.map((network) => `http://127.0.0.1:${network.port}`);
  const endpoint = await client.post("/v1/webhook-endpoints", {
    url: `${hook}/hook`,
    enabled_events: ["book.created"],
    retry_schedule: [1, 1, 2],
  });
  const receiver = new ReceiverProcess(port, folder, kind, api, KEY, endpoint.secret);
  await receiver.start();
  const state = { sent: 0, stop: false };
  const writers = [write(client, state), write(client, state)];
  try {
    for (let kill = 0; kill < KILLS; kill += 1) {
      // waits for: some events between two kills.
      await new Promise((resolve) => setTimeout(resolve, 100 + Math.random() * 400));
      const victims = [[receiver], [server], [receiver, server]][kill % 3];
      await Promise.all(victims.map((one) => one.kill()));
      for (const one of victims) await one.start();
    }
    state.stop = true;
    await Promise.all(writers);
    const cuts = networks.map((network) => network.mend()).reduce((sum, one) => sum + one, 0);
    assert.ok(cuts > 0, "no connection was cut");
    const events = await client.list("/v1/events", { type: "book.created", limit: 100 }).toArray();
    assert.equal(events.length, state.sent, "each book has one event");
    const db = new sqlite.DatabaseSync(join(folder, "app.db"));
    const count = db.prepare("SELECT count(*) AS n, count(DISTINCT event) AS d FROM effects");
    await eventually(() => count.get().d >= events.length, "all effects", 60_000);
    assert.deepEqual({ ...count.get() }, { n: events.length, d: events.length });
    const found = new Set(
      db
        .prepare("SELECT event FROM effects")
        .all()
        .map(({ event }) => event),
    );
    assert.ok(events.every(({ id }) => found.has(id)));
    console.log(`${kind}: ${KILLS} kills, ${cuts} cuts, ${events.length} events, each effect once`);
  } finally {
    state.stop = true;
    networks.forEach((network) => network.close());
    await receiver.kill();
    await server.kill();
  }
}

const limit = { timeout: 60_000 + KILLS * 20_000 };
for (const kind of ["file", "sqlite"]) {
  test(`${kind} store: each effect happens exactly once across kills`, limit, async () => {
    assert.ok(sqlite, "this test needs node:sqlite (Node 22.5 or later)");
    await exactlyOnce(kind);
  });
}
