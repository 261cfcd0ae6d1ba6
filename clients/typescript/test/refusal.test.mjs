// A refused body is read for a while, so that its client gets the response.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect } from "node:net";
import test from "node:test";

import { nodeHandler } from "restive-client/node";
import { MemoryStore, Receiver } from "restive-client/receiver";

const SECRET = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const LIMIT = 4096;

async function listen(listener) {
  const server = createServer(listener);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  return server.address().port;
}

test("a refusal reaches a client that still sends", { timeout: 60_000 }, async () => {
  const store = new MemoryStore();
  const receiver = new Receiver({ secrets: SECRET, store, maxBodyBytes: LIMIT });
  const port = await listen(nodeHandler(receiver));
  for (const framing of ["Content-Length: 10000000", "Transfer-Encoding: chunked"]) {
    const isChunked = framing.includes("chunked");
    for (let count = 0; count < 20; count += 1) {
      const socket = connect(port, "127.0.0.1");
      let text = "";
      socket.setEncoding("utf8").on("data", (part) => (text += part));
      const ended = new Promise((resolve) => socket.once("close", resolve));
      const errors = [];
      socket.on("error", (error) => errors.push(error.code));
      socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`);
      const part = Buffer.alloc(100_000, "a");
      const chunk = Buffer.concat([Buffer.from("186a0\r\n"), part, Buffer.from("\r\n")]);
      for (let sent = 0; sent < 100 && !socket.destroyed; sent += 1) {
        const written = new Promise((resolve) => socket.write(isChunked ? chunk : part, resolve));
        if (sent % 10 === 0) await written;
      }
      if (isChunked && !socket.destroyed) socket.write("0\r\n\r\n");
      await ended;
      assert.deepEqual(errors, [], framing);
      assert.match(text, /^HTTP\/1\.1 413 [^]*"body_too_large"/);
    }
  }
});

test("what is read after a refusal has a limit", { timeout: 60_000 }, async () => {
  const receiver = new Receiver({ secrets: SECRET, store: new MemoryStore(), maxBodyBytes: LIMIT });
  const port = await listen(nodeHandler(receiver));
  const socket = connect(port, "127.0.0.1");
  let sent = 0;
  socket.resume().on("error", () => undefined);
  socket.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
  const part = Buffer.alloc(1_000_000);
  while (!socket.destroyed && sent < 1000) {
    sent += 1;
    await new Promise((resolve) => socket.write(part, resolve));
  }
  assert.ok(sent < 100, `${sent} MB were read`);
  // One that sends nothing more.
  const silent = connect(port, "127.0.0.1");
  silent.resume().on("error", () => undefined);
  silent.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
  await new Promise((resolve) => silent.once("close", resolve));
});
