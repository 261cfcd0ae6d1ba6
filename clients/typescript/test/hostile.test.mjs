// What strangers can cause: requests without a valid signature, and servers that are none.

import assert from "node:assert/strict";
import test from "node:test";

import { MemoryStore, Receiver } from "restive-client/receiver";
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
