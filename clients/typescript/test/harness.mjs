// A restive server for tests: started, killed and started again at the same address; fake servers
// that misbehave; conditions with a deadline.

import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { connect, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";

export const KEY = "sk_test_clients00000000000000000000000000";

/** Libraries that only tests use. */
export const library = createRequire(join(process.env.RESTIVE_TOOLS, "node", "package.json"));

const servers = new Set();
// Also after a failed test: a running server would keep this process alive.
after(() => Promise.all([...servers].map((server) => server.kill())));

export class Server {
  #child;
  address = "127.0.0.1:0";
  data = mkdtempSync(join(tmpdir(), "restive-clients-"));

  static async start(...flags) {
    const server = new Server();
    servers.add(server);
    server.flags = flags;
    await server.start();
    return server;
  }

  get url() {
    return `http://${this.address}`;
  }

  async start() {
    const flags = ["serve", "--listen", this.address, "--data", this.data, "--rate-limit", "off"];
    const env = { ...process.env, RESTIVE_BOOTSTRAP_KEY: KEY, RESTIVE_ACCESS_LOG: "off" };
    const stdio = ["ignore", "pipe", "ignore"];
    this.#child = spawn(process.env.RESTIVE_BIN, [...flags, ...this.flags], { env, stdio });
    for await (const line of createInterface({ input: this.#child.stdout })) {
      const found = /listening on http:\/\/(\S+)/.exec(line);
      if (!found) continue;
      this.address = found[1];
      // Reads on, so that the pipe does not fill up.
      this.#child.stdout.resume();
      return;
    }
    throw new Error("the server ended without an address");
  }

  async kill(signal = "SIGKILL") {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }
}

/**
 * A network to a port of this machine that breaks: one connection in four is cut after some bytes,
 * and all of them are cut now and then, until `mend` is called.
 */
export async function brokenNetwork(port) {
  const open = new Set();
  let cuts = 0;
  let mended = false;
  const server = createTcpServer((client) => {
    const target = connect(port, "127.0.0.1");
    const ends = [client, target];
    const end = () => {
      open.delete(end);
      ends.forEach((one) => one.destroy());
    };
    open.add(end);
    let left = !mended && Math.random() < 0.25 ? 1 + Math.floor(Math.random() * 8192) : Infinity;
    for (const [from, to] of [ends, [target, client]]) {
      from.on("data", (chunk) => {
        to.write(left < chunk.length ? chunk.subarray(0, left) : chunk);
        left -= chunk.length;
        if (left > 0) return;
        cuts += 1;
        end();
      });
      from.on("error", end);
      from.on("close", end);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  const cutAll = () => {
    cuts += open.size;
    for (const end of open) end();
    timer = setTimeout(cutAll, Math.random() * 400);
  };
  let timer = setTimeout(cutAll, 100);
  const mend = () => {
    mended = true;
    clearTimeout(timer);
    return cuts;
  };
  const close = () => {
    mend();
    server.close();
    for (const end of open) end();
  };
  return { port: server.address().port, mend, close };
}

/** A server that answers with the next of the given functions; the last one stays. */
export async function fake(...steps) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const { method, url, headers } = request;
    requests.push({ method, url, headers, body, at: Date.now() });
    const step = steps[Math.min(requests.length, steps.length) - 1];
    step(response, requests.at(-1));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, requests, close };
}

export const json =
  (status, body, headers = {}) =>
  (response) => {
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };

export const html = (status) => (response) => {
  response.writeHead(status, { "Content-Type": "text/html" }).end("<h1>It works!</h1>");
};

/** Breaks the connection, after some bytes of a body if there are any. */
export const cut = (head) => (response) => {
  if (!head) return response.socket.destroy();
  response.writeHead(200, { "Content-Type": head.type, "Content-Length": "1000" });
  return response.write(head.text, () => response.socket.destroy());
};

export const stream =
  (text, { end = true } = {}) =>
  (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(text);
    if (end) response.end();
  };

/** A body without an end that is sent as fast as it is read, at most 256 MiB. */
export function flood(status, type = "application/json") {
  const sent = { bytes: 0 };
  const part = Buffer.alloc(1024 * 1024, " ");
  const step = (response) => {
    response.writeHead(status, { "Content-Type": type });
    const more = () => {
      if (sent.bytes >= 256 * part.length) return response.end();
      sent.bytes += part.length;
      return response.write(part, (error) => error || more());
    };
    more();
  };
  return { step, sent };
}

/** An event as a receiver gives it to its store. */
export const newEvent = (id, fingerprint = id) => ({
  id,
  type: "t",
  body: JSON.stringify({ id }),
  fingerprint,
  source: "webhook",
});

/** The same about a state of a resource. */
export function changed(id, resource, version, more = {}) {
  const [type, action] = ["order", more.action ?? "updated"];
  const object = { id: resource, object: type, version };
  const body = JSON.stringify({ id, type: `${type}.${action}`, data: { object }, ...more.event });
  return { ...newEvent(id), type: `${type}.${action}`, body };
}

/** Waits for a condition, at most for the deadline. */
export async function eventually(condition, what, deadline = 20_000) {
  const end = Date.now() + deadline;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${deadline} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
