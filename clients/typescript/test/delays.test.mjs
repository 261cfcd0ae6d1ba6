// How long a follower waits. Apart from the other tests, because it changes the clock.

import assert from "node:assert/strict";
import test from "node:test";

import { Client } from "restive-client";

import { fake, html, stream } from "./harness.mjs";

const hello = "retry: 10\nid: e.1\n\n";
const tail = stream('event: message\nid: e.9\ndata: {"text":"last"}\n\n', { end: false });

test("delays double up to 30 s and begin again after a success", { timeout: 30_000 }, async () => {
  // Without waiting: the timers run as fast as they are set.
  const { setTimeout: real } = globalThis;
  const steps = [...Array(8).fill(html(500)), stream(hello), html(500), tail];
  const { url, close } = await fake(...steps);
  const delays = [];
  const onState = ({ state, delay }) => state === "waiting" && delays.push(delay);
  globalThis.setTimeout = (callback, ms, ...rest) => real(callback, ms < 60_000 ? ms / 1000 : ms, ...rest);
  try {
    for await (const _ of new Client({ url, key: "k" }).follow({ onState })) break;
  } finally {
    globalThis.setTimeout = real;
    close();
  }
  const bases = [1000, 2000, 4000, 8000, 15_000, 15_000, 15_000, 15_000];
  bases.forEach((base, at) => assert.ok(delays[at] >= base && delays[at] <= 2 * base, `${delays}`));
  assert.equal(delays[8], 10, "what the server asks for after a success");
  assert.ok(delays[9] >= 2000 && delays[9] <= 4000, `${delays}`);
});

