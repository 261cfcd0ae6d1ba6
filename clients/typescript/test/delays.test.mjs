// How long a follower waits. Apart from the other tests, because it makes the timers faster: they
// run a hundred times as fast.

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { Client } from "restive-client";

import { fake, html, json, stream } from "./harness.mjs";

const { setTimeout: real } = globalThis;
before(() => (globalThis.setTimeout = (run, ms, ...rest) => real(run, ms / 100, ...rest)));
after(() => (globalThis.setTimeout = real));

const deadline = { timeout: 30_000 };
const hello = "retry: 10\nid: e.1\n\n";
const tail = stream('event: message\nid: e.9\ndata: {"text":"last"}\n\n', { end: false });

/** Follows until the first message; returns what the follower reported. */
async function states(url, options = {}) {
  const states = [];
  const onState = (state) => states.push(state);
  const client = new Client({ url, key: "k" });
  for await (const _ of client.follow({ onState, ...options })) break;
  return states;
}

test("delays double up to 30 s and begin again after a success", deadline, async () => {
  const worked = stream('id: e.1\n\nevent: typing\ndata: {"data":1}\n\n');
  // That a connection was opened is no success: it may end at once, each time.
  const opened = stream("id: e.1\n\n");
  const steps = [...Array(4).fill(html(500)), opened, opened, worked, html(500), tail];
  const { url, close } = await fake(...steps);
  const delays = [];
  const onState = ({ state, delay }) => state === "waiting" && delays.push(delay);
  for await (const { type } of new Client({ url, key: "k" }).follow({ onState })) {
    if (type === "message") break;
  }
  close();
  const bases = [1000, 2000, 4000, 8000, 15_000, 15_000, 1000, 2000];
  assert.equal(delays.length, bases.length);
  bases.forEach((base, at) => assert.ok(delays[at] >= base && delays[at] <= 2 * base, `${delays}`));
});

test("what a server asks for is obeyed from a second to five minutes", deadline, async () => {
  const limited = (seconds) =>
    json(429, { error: { code: "rate_limited" } }, { "Retry-After": String(seconds) });
  for (const [answer, expected] of [
    [limited(31_536_000), 300_000],
    [limited(300), 300_000],
    [limited(120), 120_000],
    [stream("retry: 99999999999\nid: e.1\n\n"), 300_000],
    [stream("retry: 0\nid: e.1\n\n"), 1_000],
    [stream("retry: 10\nid: e.1\n\n"), 1_000],
  ]) {
    const { url, close } = await fake(answer);
    const delays = [];
    const follower = new Client({ url, key: "k" }).follow({
      onState: ({ state, delay }) => {
        if (state !== "waiting") return;
        delays.push(delay);
        follower.close();
      },
    });
    for await (const _ of follower) break;
    close();
    assert.deepEqual(delays, [expected]);
  }
});

test("a stream that is silent for a minute is opened again", deadline, async () => {
  const { url, requests, close } = await fake(stream(hello, { end: false }), tail);
  await states(url);
  close();
  assert.equal(requests.length, 2);
});

test("a poll that is silent for a minute is sent again", deadline, async () => {
  const poll = (response) => {
    response.writeHead(200, { "Content-Type": "application/json", "X-Stream-Position": "e.9" });
    response.end('[{"id":9,"object":"message"}]');
  };
  const { url, requests, close } = await fake(() => undefined, poll);
  await states(url, { channel: "poll", feed: "messages", since: "e.1" });
  close();
  assert.equal(requests.length, 2);
});

test("a socket that does not answer a ping is opened again", deadline, async () => {
  const sent = [];
  let opened = 0;
  class Silent {
    readyState = 1;
    constructor() {
      const first = (opened += 1) === 1;
      const message = { type: "message", position: "e.2", data: {} };
      const texts = [{ type: "welcome", position: "e.1" }, ...(first ? [] : [message])];
      real(() => texts.forEach((text) => this.onmessage({ data: JSON.stringify(text) })));
    }
    send(text) {
      sent.push(text);
    }
    close() {}
  }
  const options = { channel: "websocket", WebSocket: Silent, token: () => "ct_1" };
  const found = await states("http://127.0.0.1:1", options);
  assert.equal(opened, 2);
  assert.equal(sent[0], '{"type":"ping"}');
  assert.match(String(found.find(({ state }) => state === "waiting").error), /no pong/);
});
