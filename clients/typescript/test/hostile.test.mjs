// What strangers can cause: requests without a valid signature, and servers that are none.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import test from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client } from "restive-client";
import { nodeHandler } from "restive-client/node";
import { MemoryStore, Receiver, fetchHandler, fingerprintOf } from "restive-client/receiver";
import { sign, verify } from "restive-client/webhook";

import { ahead } from "./stores.mjs";

const SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const OTHER = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";
const deadline = { timeout: 30_000 };
const bytes = (text) => new TextEncoder().encode(text);
const signed = (body, secrets = SECRET) => sign(body, { secrets, id: "evt_1" });
const compact = (value) => JSON.stringify(value);

/** Fills a JSON text up to the largest one that is diagnosed. */
const full = (begin, item, end) => {
  const count = Math.floor((256 * 1024 - begin.length - end.length) / item.length) - 1;
  return begin + item.repeat(count) + item.replace(/,$/, "") + end;
};
const deep = (depth) => full("[".repeat(depth), "1,", "]".repeat(depth));

test("a signature that does not match costs little, whatever the body", deadline, async () => {
  const { subtle } = crypto;
  const own = subtle.sign;
  let hashed = 0;
  subtle.sign = function (algorithm, key, data) {
    hashed += data.byteLength;
    return own.call(this, algorithm, key, data);
  };
  try {
    for (const [name, body] of [
      ["nested 900 times", deep(900)],
      ["nested 16 times", deep(16)],
      ["nested 5,000 times", deep(5_000)],
      ["nested as deeply as it can be", "[".repeat(131_072) + "]".repeat(131_072)],
      ["nested objects", full(`${'{"a":'.repeat(900)}[`, "[],", `]${"}".repeat(900)}`)],
      ["short numbers that are long when they are written", full("[", "1e20,", "]")],
      ["letters that have escapes", `["${"é".repeat(131_000)}"]`],
    ]) {
      hashed = 0;
      const headers = await signed(body.slice(0, 10), OTHER);
      hashed = 0;
      await assert.rejects(verify(headers, body, { secrets: SECRET }), { reason: "no_match" });
      const limit = 64 * bytes(body).length;
      assert.ok(hashed < limit, `${name}: ${hashed} bytes were hashed for ${body.length}`);
    }
  } finally {
    delete subtle.sign;
  }
});

test("an ordinary body that was written again is explained", deadline, async () => {
  const price = { recurring: { tiers: [{ up_to: 10, amounts: [1, 2, 3, [4, [5]]] }], meta: {} } };
  const item = { id: "si_1", livemode: false, price, tags: [], name: "Gödel – 音" };
  const order = { id: "ord_1", object: "order", items: { data: Array(40).fill(item) } };
  const event = { id: "evt_1", type: "order.created", data: { object: order }, created: 1.5e9 };
  const nested = JSON.parse('{"a":['.repeat(10) + "1" + "]}".repeat(10));
  const python = (value) => compact(value).replaceAll(/([,:])(?=["[{0-9tf])/g, "$1 ");
  for (const value of [event, nested]) {
    const layouts = {
      compact: compact(value),
      two: JSON.stringify(value, null, 2),
      four: JSON.stringify(value, null, 4),
      spaced: python(value),
    };
    for (const [from, original] of Object.entries(layouts)) {
      for (const [to, received] of Object.entries(layouts)) {
        const found = verify(await signed(original), received, { secrets: [OTHER, SECRET] });
        if (original === received) await found;
        else {
          const expected = { reason: "no_match", diagnosis: "body_reserialised" };
          await assert.rejects(found, expected, `${from} as ${to}`);
        }
      }
    }
  }
});

test("a receiver explains one signature a second, and refuses the others", deadline, async () => {
  const problems = [];
  const onProblem = ({ code, error }) => problems.push([code, error.reason, error.diagnosis]);
  const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore(), onProblem });
  const body = compact({ id: "evt_1" });
  const headers = await signed(body);
  const send = async (text) => {
    assert.equal((await receiver.accept("POST", headers, bytes(text))).status, 401);
  };
  for (let count = 0; count < 3; count += 1) await send(`${body}\n`);
  const second = 1 / 86_400;
  await ahead(0, second, () => send(`${body}\n`));
  const refused = ["signature_no_match", "no_match"];
  const explained = [...refused, "body_reserialised"];
  const plain = [...refused, undefined];
  assert.deepEqual(problems, [explained, plain, plain, explained]);
  // A good one does not use it up.
  const own = new Receiver({ secrets: SECRET, store: new MemoryStore(), onProblem });
  assert.equal((await own.accept("POST", headers, bytes(body))).status, 200);
  assert.equal((await own.accept("POST", headers, bytes(`${body}\n`))).status, 401);
  assert.deepEqual(problems.at(-1), explained);
});

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

/** Parts of one byte, as a parser returns them: each keeps the bytes around it in memory. */
function* crumbs(count) {
  for (let number = 0; number < count; number += 1) yield new Uint8Array(16 * 1024).subarray(0, 1);
}

test("a body in parts of one byte needs little memory", deadline, async () => {
  const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore() });
  const count = 20_000;
  let kept = 0;
  function* parts() {
    yield* crumbs(count);
    collectGarbage();
    kept = process.memoryUsage().arrayBuffers;
  }
  const limit = () => process.memoryUsage().arrayBuffers + 50_000_000;
  const ofNode = async () => {
    const request = Readable.from(parts());
    Object.assign(request, { method: "POST", headers: {}, rawHeaders: [], socket: {} });
    request.complete = true;
    const written = {};
    const response = { writeHead: (status) => (written.status = status), end: () => undefined };
    await nodeHandler(receiver)(request, response);
    return written.status;
  };
  const ofFetch = async () => {
    const source = parts();
    const pull = (controller) => {
      const { done, value } = source.next();
      return done ? controller.close() : controller.enqueue(value);
    };
    const body = new ReadableStream({ pull });
    const init = { method: "POST", body, duplex: "half" };
    return (await fetchHandler(receiver)(new Request("http://receiver/hook", init))).status;
  };
  for (const send of [ofNode, ofFetch]) {
    collectGarbage();
    const most = limit();
    assert.equal(await send(), 401);
    assert.ok(kept > 0 && kept < most, `${send.name}: ${kept} bytes were kept for ${count}`);
  }
});

test("a response that is there already is not written again", deadline, async () => {
  const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore() });
  const handler = nodeHandler(receiver);
  let result;
  const server = createServer((request, response) => {
    // As a time limit of the application does.
    response.writeHead(503).end("too late");
    result = handler(request, response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/`;
  assert.equal((await fetch(url, { method: "POST", body: "{}" })).status, 503);
  await result;
  server.close();
});

/** A client whose server answers with a stream in these parts. */
function streaming(parts) {
  const source = parts[Symbol.iterator]();
  const pull = (controller) => {
    const { done, value } = source.next();
    return done ? controller.close() : controller.enqueue(bytes(value));
  };
  const headers = { "Content-Type": "text/event-stream" };
  const fetch = async () => new Response(new ReadableStream({ pull }), { headers });
  return new Client({ url: "http://127.0.0.1:1", fetch });
}

test("sse: a large event in small parts is read in time", { timeout: 600_000 }, async () => {
  const part = "x".repeat(256);
  const count = (8 * 1024 * 1024) / part.length;
  function* parts() {
    yield 'data: {"text":"';
    for (let number = 0; number < count; number += 1) yield part;
    // The halves of a line end come one by one, too.
    yield* ['"}\r', "\n", "\r", "\n"];
  }
  const began = performance.now();
  for await (const { data } of streaming(parts()).follow()) {
    assert.equal(data.text.length, count * part.length);
    break;
  }
  const seconds = (performance.now() - began) / 1000;
  assert.ok(seconds < 15, `${seconds} s`);
});

test("websocket: messages that wait for the consumer have a limit in bytes", deadline, async () => {
  const text = "x".repeat(1024 * 1024);
  const data = (number) => ({ number, text });
  const message = (at) => ({ type: "message", position: `e.${at}`, data: data(at) });
  const welcome = { type: "welcome", position: "e.1" };
  const all = Array.from({ length: 40 }, (_, at) => message(at + 2));
  let connections = 0;
  let received = 0;
  class Fake {
    constructor(url) {
      connections += 1;
      const since = Number(/since=e\.(\d+)/.exec(url)?.[1] ?? 1);
      setTimeout(() => {
        for (const one of [welcome, ...all.slice(since - 1)]) {
          if (!this.onmessage) return;
          received += 1;
          this.onmessage({ data: JSON.stringify(one) });
        }
      });
    }
    close() {}
  }
  const options = { channel: "websocket", WebSocket: Fake, token: () => "ct_1" };
  const numbers = [];
  for await (const { data } of new Client({ url: "http://127.0.0.1:1" }).follow(options)) {
    numbers.push(data.number);
    if (numbers.length === 1) assert.ok(received <= 20, `${received} messages of 1 MiB wait`);
    if (numbers.length === all.length) break;
  }
  assert.deepEqual(numbers, all.map(({ data }) => data.number));
  assert.ok(connections > 1);
});

test("the time for a fingerprint grows with the body, not with its nesting", deadline, async () => {
  const hash = (text) => createHash("sha256").update(text).digest("hex");
  const text = "x".repeat(8_000_000);
  const deep = (begin, end) => `{"a":${begin.repeat(1_500)}"${text}"${end.repeat(1_500)},"id":"e"}`;
  const began = performance.now();
  const small = '{"a":[],"b":{},"c":[null,{"d":"é"}]}';
  for (const body of [deep("[1,", "]"), deep('{"a":1,"b":', "}"), small]) {
    assert.equal(await fingerprintOf(JSON.parse(body)), hash(body));
  }
  const unordered = { c: 1, pending_webhooks: 2, a: { z: 1, b: [true, 1.5] } };
  assert.equal(await fingerprintOf(unordered), hash('{"a":{"b":[true,1.5],"z":1},"c":1}'));
  const seconds = (performance.now() - began) / 1000;
  assert.ok(seconds < 5, `${seconds} s`);
});
