// The follower: every event once and in order, whatever happens to the connection and the server.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client, FollowError } from "restive-client";

import { KEY, Server, cut, eventually, fake, flood, html, json, stream } from "./harness.mjs";

// Most tests wait for a delay, so they wait together.
const tests = [];
const test = (...test) => tests.push(test);

const CHANNELS = ["sse", "websocket", "poll"];
const deadline = { timeout: 60_000 };

/** Follows until the text `last` comes; returns the texts. */
async function collect(follower, last, texts = []) {
  for await (const { type, data } of follower) {
    texts.push(type === "stream.reset" ? `reset ${data.reason}` : (data.text ?? type));
    if (texts.at(-1) === last) break;
  }
  return texts;
}

for (const channel of CHANNELS) {
  test(`${channel}: every event comes once while the server is killed`, deadline, async () => {
    const server = await Server.start();
    const client = new Client({ url: server.url, key: KEY, maxRetries: 20 });
    let opened = 0;
    const onState = ({ state }) => (opened += state === "open" ? 1 : 0);
    const follower = client.follow({ channel, types: ["message"], feed: "messages", onState });
    const texts = [];
    const done = collect(follower, "last", texts);
    await eventually(() => opened > 0, "the first connection");
    const written = [];
    for (let number = 0; number < 60; number += 1) {
      if (number === 20 || number === 40) await server.kill().then(() => server.start());
      const text = `message ${number}`;
      await client.post("/v1/messages", { from: "ann", text });
      written.push(text);
    }
    await client.post("/v1/messages", { from: "ann", text: "last" });
    assert.deepEqual(await done, [...written, "last"]);
    assert.ok(opened >= 2, `${opened} connections`);
    await server.kill();
  });

  test(`${channel}: a follower resumes from a position of another channel`, deadline, async () => {
    const server = await Server.start();
    const client = new Client({ url: server.url, key: KEY });
    const { position } = await client.list("/v1/messages");
    for (const text of ["a", "b", "c"]) await client.post("/v1/messages", { from: "ann", text });
    let since = position;
    const texts = [];
    for (const used of [channel, ...CHANNELS]) {
      const options = { channel: used, types: ["message"], feed: "messages", since };
      for await (const { data, position } of client.follow(options)) {
        texts.push(data.text);
        since = position;
        break;
      }
      if (texts.length === 3) break;
    }
    assert.deepEqual(texts, ["a", "b", "c"]);
    await server.kill();
  });

  test(`${channel}: a gap is reported, then the stream goes on`, deadline, async () => {
    const server = await Server.start();
    const client = new Client({ url: server.url, key: KEY });
    const resets = [];
    const since = "00000000.1";
    const options = { channel, types: ["message"], feed: "messages", since };
    const onReset = (reset) => resets.push(reset);
    const follower = client.follow({ ...options, onReset });
    const done = collect(follower, "after");
    await eventually(() => resets.length > 0, "the reset");
    await client.post("/v1/messages", { from: "ann", text: "after" });
    assert.deepEqual(await done, ["after"]);
    assert.equal(resets.length, 1);
    assert.equal(resets[0].refetch?.length > 0, true, JSON.stringify(resets));
    const [first] = await collect(client.follow(options), undefined, {
      push(text) {
        throw text;
      },
    }).catch((text) => [text]);
    assert.match(first, /^reset /);
    await server.kill();
  });
}

test("websocket: an expired token is replaced at once", deadline, async () => {
  await expires("websocket");
});
test("sse: an expired token is replaced at once", deadline, async () => {
  await expires("sse");
});

async function expires(channel) {
  const server = await Server.start();
  const backend = new Client({ url: server.url, key: KEY });
  let tokens = 0;
  const token = async () => {
    tokens += 1;
    const body = { user: "ann", types: ["message"], expires_in: 5 };
    return (await backend.post("/v1/channel-tokens", body)).token;
  };
  let opened = 0;
  const onState = ({ state }) => (opened += state === "open" ? 1 : 0);
  const page = new Client({ url: server.url });
  const done = collect(page.follow({ channel, types: ["message"], token, onState }), "last");
  await eventually(() => opened > 0, "the first connection");
  await backend.post("/v1/messages", { from: "ann", text: "first" });
  await eventually(() => opened > 1, "the second connection");
  assert.ok(tokens >= 2);
  await backend.post("/v1/messages", { from: "ann", text: "last" });
  assert.deepEqual(await done, ["first", "last"]);
  await server.kill();
}

test("sse: an event of more than 16 MiB ends the connection", deadline, async () => {
  const huge = stream(`data: ${"x".repeat(17 * 1024 * 1024)}`, { end: false });
  const { url, close } = await fake(huge, tail);
  const errors = [];
  const onState = ({ error }) => error && errors.push(String(error));
  assert.deepEqual(await collect(new Client({ url }).follow({ onState }), "last"), ["last"]);
  close();
  assert.match(errors[0], /too long/);
});

test("sse: a refused key is renewed", deadline, async () => {
  const refused = json(401, { error: { code: "invalid_api_key", message: "no" } });
  const { url, requests, close } = await fake(refused, tail);
  let keys = 0;
  const client = new Client({ url, key: () => `key${(keys += 1)}` });
  assert.deepEqual(await collect(client.follow(), "last"), ["last"]);
  close();
  const sent = requests.map(({ headers }) => headers.authorization);
  assert.deepEqual(sent, ["Bearer key1", "Bearer key2"]);
});

test("the position is saved after a message was processed", deadline, async () => {
  const server = await Server.start();
  const client = new Client({ url: server.url, key: KEY });
  let kept = (await client.list("/v1/messages")).position;
  const saved = [];
  const positions = { load: () => kept, save: (position) => saved.push((kept = position)) };
  for (const text of ["a", "b", "c"]) await client.post("/v1/messages", { from: "ann", text });
  const seen = [];
  for await (const { data } of client.follow({ types: ["message"], positions })) {
    seen.push([data.text, saved.length]);
    // The process dies while it handles `b`: it must come again.
    if (data.text === "b") break;
  }
  assert.deepEqual(seen, [
    ["a", 0],
    ["b", 1],
  ]);
  const again = await collect(client.follow({ types: ["message"], positions }), "c");
  assert.deepEqual(again, ["b", "c"]);
  await server.kill();
});

const hello = "retry: 10\nid: e.1\n\n";
const event = (number, text = `${number}`) =>
  `event: message\nid: e.${number}\ndata: {"text":"${text}"}\n\n`;
const tail = stream(event(9, "last"), { end: false });
const closing = (reason) => `event: stream.closing\ndata: {"reason":"${reason}"}\n\n`;
const slow = json(429, { error: { code: "rate_limited" } }, { "Retry-After": "2" });

// what the server sends on each connection; the expected texts; the range of the first delay in ms
for (const [name, steps, texts, min, max] of [
  [
    "a connection that breaks within an event",
    [
      cut({ type: "text/event-stream", text: hello + event(2) + event(3).slice(0, 30) }),
      stream(hello + event(3) + event(9, "last"), { end: false }),
    ],
    ["2", "3", "last"],
    1000,
    2000,
  ],
  [
    "events that are sent twice",
    [
      stream(hello + event(2) + event(2) + event(3)),
      stream(event(2) + event(3) + event(4) + event(9, "last"), { end: false }),
    ],
    ["2", "3", "4", "last"],
    1000,
    1000,
  ],
  ["an HTML page", [html(200), tail], ["last"], 1000, 2000],
  ["an HTML page with 404", [html(404), tail], ["last"], 1000, 2000],
  ["429 with Retry-After", [slow, tail], ["last"], 2000, 2000],
  ["503", [json(503, { error: { code: "overloaded" } }), tail], ["last"], 1000, 2000],
  ["a refused connection with retry", [stream("retry: 2500\n\n"), tail], ["last"], 2500, 2500],
  ["a drain with retry", [stream(hello + "retry: 1500\n\n"), tail], ["last"], 1500, 1500],
  ["slow_resume", [stream(hello + closing("slow_resume")), tail], ["last"], 1000, 2000],
  ["token_expired", [stream(hello + closing("token_expired")), tail], ["last"], 0, 0],
  ["data that is not JSON", [stream(hello + "id: e.2\ndata: {\n\n"), tail], ["last"], 1000, 2000],
  [
    "a reset after a cut greeting",
    [
      stream("id: e.7\n\n"),
      stream(
        `event: stream.reset\nid: e.7\ndata: {"reason":"expired"}\n\n` +
          event(8) +
          event(9, "last"),
        { end: false },
      ),
    ],
    ["reset expired", "8", "last"],
    1000,
    2000,
  ],
  [
    "line ends of all kinds and comments",
    [
      stream(`\r\n: hi\r\nid: e.2\r\ndata: {"text":\r\ndata: "2"}\r\r` + event(9, "last"), {
        end: false,
      }),
    ],
    ["2", "last"],
  ],
]) {
  test(`sse: ${name}`, deadline, async () => {
    const { url, requests, close } = await fake(...steps);
    const delays = [];
    const onState = ({ state, delay }) => state === "waiting" && delays.push(delay);
    const follower = new Client({ url, key: "k" }).follow({
      since: "e.1",
      onState,
      token: () => "t",
    });
    try {
      assert.deepEqual(await collect(follower, "last"), texts);
    } finally {
      close();
    }
    assert.equal(requests.length, steps.length);
    assert.match(requests[0].url, /since=e\.1/);
    if (min === undefined) return;
    assert.ok(delays[0] >= min && delays[0] <= max, `waited ${delays[0]} ms`);
    // A position is what the consumer has received, so a gap is asked for again.
    const last = name.includes("twice") ? "e.3" : name.includes("breaks") ? "e.2" : "e.1";
    assert.match(requests[1].url, new RegExp(`since=${last.replace(".", "\\.")}`));
  });
}

// what the follower must not repeat
for (const [name, step] of [
  ["403 from the service", json(403, { error: { code: "permission_denied", message: "no" } })],
  ["400 from the service", json(400, { error: { code: "invalid_parameter", message: "no" } })],
  [
    "401 without a token function",
    json(401, { error: { code: "invalid_api_key", message: "no" } }),
  ],
  ["key_revoked", stream(hello + closing("key_revoked"))],
]) {
  test(`sse: ${name} ends the follower`, deadline, async () => {
    const { url, requests, close } = await fake(step);
    await assert.rejects(collect(new Client({ url, key: "k" }).follow(), "last"), FollowError);
    assert.equal(requests.length, 1);
    close();
  });
}

/** A WebSocket that does what the script says, one entry per connection. */
function scripted(script) {
  const opened = [];
  class Fake {
    readyState = 1;
    constructor(url, protocols) {
      const steps = script[Math.min(opened.push({ url, protocols }), script.length) - 1];
      setTimeout(() => this.#play(steps));
    }
    #play(steps) {
      for (const step of steps) {
        if (typeof step === "number") this.onclose?.({ code: step, reason: "" });
        else this.onmessage?.({ data: typeof step === "string" ? step : JSON.stringify(step) });
      }
    }
    send() {}
    close() {}
  }
  return { Fake, opened };
}

const welcome = { type: "welcome", position: "e.1" };
const message = (number, text = `${number}`) => ({
  type: "message",
  position: `e.${number}`,
  data: { text },
});
const finale = [welcome, message(9, "last")];

// the messages and the close code of the first connection; the range of the delay; null: it ends
for (const [code, min, max] of [
  [4001, null],
  [4099, null],
  [1002, null],
  [1003, null],
  [1007, null],
  [1009, null],
  [4101, 1000, 2000],
  [4102, 1000, 2000],
  [4199, 1000, 2000],
  [4201, 0, 0],
  [4299, 0, 0],
  [1012, 1000, 5000],
  [1006, 1000, 2000],
  [1001, 1000, 2000],
]) {
  test(`websocket: close code ${code}`, deadline, async () => {
    const { Fake, opened } = scripted([[welcome, message(2), message(2), code], finale]);
    const delays = [];
    const onState = ({ state, delay }) => state === "waiting" && delays.push(delay);
    let tokens = 0;
    const token = () => `ct_${(tokens += 1)}`;
    const client = new Client({ url: "http://127.0.0.1:1" });
    const texts = [];
    const options = { channel: "websocket", WebSocket: Fake, token, onState };
    const done = collect(client.follow(options), "last", texts);
    if (min === null) {
      await assert.rejects(done, FollowError);
      assert.deepEqual([texts, opened.length], [["2"], 1]);
      return;
    }
    await done;
    assert.deepEqual(texts, ["2", "last"]);
    assert.ok(delays[0] >= min && delays[0] <= max, `waited ${delays[0]}`);
    assert.match(opened[1].url, /since=e\.2/);
    assert.equal(tokens, code === 4201 ? 2 : 1);
    assert.deepEqual(opened[1].protocols, ["restive.v1", `access_token.ct_${tokens}`]);
  });
}

/**
 * As the package `ws`: an error that has no listener ends the process. It also comes after `close`.
 */
function strict(script) {
  const { Fake, opened } = scripted(script);
  class Strict extends Fake {
    constructor(...address) {
      super(...address);
      if (opened.length === 1) setTimeout(() => this.#fail("ECONNREFUSED"));
    }
    #fail(message) {
      if (!this.onerror) throw new Error(`nobody handles ${message}`);
      this.onerror({ type: "error", message });
      this.onclose?.({ code: 1006, reason: "" });
    }
    close() {
      setTimeout(() => this.#fail("closed before the connection was established"));
    }
  }
  return Strict;
}

test("websocket: an error of `ws` ends a connection, not the process", deadline, async () => {
  const delays = [];
  const onState = ({ state, delay }) => state === "waiting" && delays.push(delay);
  const WebSocket = strict([[], finale]);
  const options = { channel: "websocket", WebSocket, token: () => "ct_1", onState };
  const follower = new Client({ url: "http://127.0.0.1:1" }).follow(options);
  assert.deepEqual(await collect(follower, "last"), ["last"]);
  assert.equal(delays.length, 1);
  // The error after `close` comes.
  await new Promise((resolve) => setTimeout(resolve, 50));
});

test("websocket: a consumer that is slow loses nothing", deadline, async () => {
  const many = Array.from({ length: 1500 }, (_, at) => message(at + 2));
  const { Fake, opened } = scripted([
    [welcome, ...many],
    [welcome, ...many.slice(900), message(9999, "last")],
  ]);
  const options = { channel: "websocket", WebSocket: Fake, token: () => "ct_1" };
  const texts = await collect(new Client({ url: "http://127.0.0.1:1" }).follow(options), "last");
  assert.deepEqual(texts, [...many.map(({ data }) => data.text), "last"]);
  assert.equal(opened.length, 2);
});

test("websocket: a refused handshake is explained", deadline, async () => {
  const server = await Server.start();
  const client = new Client({ url: server.url, key: KEY });
  const unknown = client.follow({ channel: "websocket", since: "?" });
  await assert.rejects(collect(unknown, "last"), FollowError);
  const wrong = new Client({ url: server.url, key: "sk_test_unknown" });
  await assert.rejects(collect(wrong.follow({ channel: "websocket" }), "last"), FollowError);
  await server.kill();
});

test("poll: empty responses at once are asked for once a second", deadline, async () => {
  for (const text of ["[]", '[{"id":1,"object":"message"}]']) {
    const { url, requests, close } = await fake((response) => {
      response.writeHead(200, { "Content-Type": "application/json", "X-Stream-Position": "e.1" });
      response.end(text);
    });
    const follower = new Client({ url, key: "k" }).follow({ channel: "poll", feed: "messages" });
    const done = collect(follower, "last");
    await eventually(() => requests.length >= 4, "four polls");
    follower.close();
    await done;
    close();
    // The second one knows the position.
    const passed = requests[3].at - requests[1].at;
    assert.ok(passed >= 1_900, `two polls in ${passed} ms`);
  }
});

for (const channel of ["sse", "poll"]) {
  test(`${channel}: a response without an end is not read`, deadline, async () => {
    for (const status of channel === "sse" ? [503] : [503, 200]) {
      const { step, sent } = flood(status);
      const { url, close } = await fake(step);
      const errors = [];
      const follower = new Client({ url, key: "k" }).follow({
        channel,
        feed: "messages",
        onState: ({ error }) => {
          if (!error) return;
          errors.push(error.message);
          follower.close();
        },
      });
      for await (const _ of follower);
      close();
      assert.match(errors[0], status === 503 ? /503/ : /larger than 16777216 bytes/);
      assert.ok(sent.bytes < 64 * 1024 * 1024, `${sent.bytes} bytes were sent`);
    }
  });
}

test("close ends the loop, also while it waits", deadline, async () => {
  for (const step of [html(500), stream(hello, { end: false })]) {
    const { url, requests, close } = await fake(step);
    const follower = new Client({ url, key: "k" }).follow();
    const done = collect(follower, "last");
    await eventually(() => requests.length > 0, "a request");
    setTimeout(() => follower.close(), 50);
    assert.deepEqual(await done, []);
    close();
  }
});

// After a garbage collection `fetch` of Node 20 does not end a body whose request is aborted.
test("close ends the loop after a garbage collection", deadline, async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc");
  const { url, close } = await fake(stream(hello, { end: false }));
  for (let round = 0; round < 5; round += 1) {
    const states = [];
    const onState = ({ state }) => states.push(state);
    const follower = new Client({ url, key: "k" }).follow({ onState });
    const done = collect(follower, "last");
    await eventually(() => states.includes("open"), "the connection");
    for (let times = 0; times < 5; times += 1) {
      collectGarbage();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    follower.close();
    assert.deepEqual(await done, []);
  }
  close();
});

describe("the follower", { concurrency: 16 }, () => {
  for (const one of tests) it(...one);
});
