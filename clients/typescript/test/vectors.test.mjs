// The vectors that all languages share.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { MemoryStore, Receiver } from "restive-client/receiver";
import { SignatureError, sign, verify } from "restive-client/webhook";

const vectors = JSON.parse(readFileSync(process.env.RESTIVE_VECTORS, "utf8"));

const bodyOf = (vector) => vector.body ?? new Uint8Array(Buffer.from(vector.body_base64, "base64"));

for (const vector of vectors.verify) {
  test(vector.name, async () => {
    const { secrets, family, now, tolerance, expect } = vector;
    const options = { secrets, families: [family], now, toleranceSeconds: tolerance };
    const found = await verify(vector.headers, bodyOf(vector), options).catch((error) => error);
    if (expect === "ok") return assert.equal(found.family, family, String(found));
    assert.ok(found instanceof SignatureError, `expected ${expect}, got ${found}`);
    assert.equal(found.reason, expect, found.message);
    assert.equal(found.skewSeconds, vector.skew_seconds);
    if (vector.diagnosis) assert.equal(found.diagnosis, vector.diagnosis, found.message);
    for (const secret of secrets) assert.ok(!found.message.includes(secret));
  });
}

for (const { name, family, secrets, headers, body, id } of vectors.event_ids) {
  test(`id of ${name}`, async () => {
    const store = new MemoryStore();
    // Of two families that verify, the first counts.
    const families = family === "standard" ? ["standard", "timestamped"] : [family];
    const receiver = new Receiver({ secrets, families, store, now: 1_760_000_000 });
    const answer = await receiver.accept("POST", headers, new TextEncoder().encode(body));
    const stored = await store.claim(Date.now(), 1000);
    assert.deepEqual([answer.status, stored?.id ?? null], [id === null ? 400 : 200, id]);
    if (id === null) assert.match(answer.body, /invalid_id/);
  });
}

test("signatures are the same bytes in all languages", async () => {
  for (const { secrets, id, timestamp, body, headers } of vectors.sign) {
    assert.deepEqual(await sign(body, { secrets, id, timestamp }), headers);
  }
});

test("a secret that cannot be one is refused, and not shown", async () => {
  for (const { secret, why } of vectors.refused_secrets) {
    await assert.rejects(verify({}, "{}", { secrets: secret }), (error) => {
      assert.ok(error instanceof TypeError, why);
      return !secret.trim() || !error.message.includes(secret.trim().slice(6) || "-");
    });
  }
  await assert.rejects(verify({}, "{}", { secrets: [] }), TypeError);
});

test("a family without a timestamp is accepted only if it is named", async () => {
  const { "X-Hub-Signature-256": plain } = vectors.sign[0].headers;
  const { body, secrets } = vectors.sign[0];
  const headers = { "X-Hub-Signature-256": plain };
  await assert.rejects(verify(headers, body, { secrets }), { reason: "missing" });
  await verify(headers, body, { secrets, families: ["plain"] });
});

test("every changed bit of the body is noticed", async () => {
  const { body, secrets, headers, timestamp: now } = vectors.sign[0];
  const bytes = new TextEncoder().encode(body);
  for (let bit = 0; bit < bytes.length * 8; bit += 7) {
    const changed = bytes.slice();
    changed[bit >> 3] ^= 1 << (bit & 7);
    await assert.rejects(verify(headers, changed, { secrets, now }), { reason: "no_match" });
  }
});
