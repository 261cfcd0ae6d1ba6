// For Node: the receiver as a handler for Express or `node:http`, and the durable stores.

import type { IncomingMessage, ServerResponse } from "node:http";
import { BlockList, isIPv6 } from "node:net";

import { Bytes } from "./body.js";
import { arrival, type Answer, type Receiver, type Source } from "./receiver.js";

export { FileStore } from "./node/file.js";
export { SqliteStore, applyOnce } from "./node/sqlite.js";
export type { SqliteDatabase } from "./node/sqlite.js";

/** What is read of a body after it was refused, and for how long. */
const DISCARD_BYTES = 16 * 1024 * 1024;
const DISCARD_MS = 2_000;

/**
 * `app.post("/hook", nodeHandler(receiver))`, or the listener of `http.createServer`. It reads the
 * body itself: mount it before `express.json()`. After `express.raw({ type: "*" })` it also works.
 * `sourceOf`: how a request arrived. Default: what Express says, which knows its `trust proxy`,
 * otherwise the socket.
 */
export function nodeHandler(
  receiver: Receiver,
  sourceOf: (request: IncomingMessage) => Source = sourceOfNode,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    const source = arrival(sourceOf, request);
    const method = request.method ?? "";
    let answer = receiver.check(method, source);
    try {
      if (!answer) {
        const body = await rawBody(request, receiver);
        answer =
          body instanceof Uint8Array
            ? await receiver.accept(method, headersOf(request), body, source)
            : body;
      }
    } catch (refused) {
      answer = refused as Answer;
    }
    await send(request, response, answer);
  };
}

/** A client that still sends the body may not see the answer if the connection is closed then. */
async function send(
  request: IncomingMessage,
  response: ServerResponse,
  { status, headers, body }: Answer,
): Promise<void> {
  // By a time limit of the application, for example.
  if (response.headersSent) return;
  const isRead = request.complete;
  if (!isRead) response.setHeader("Connection", "close");
  response.writeHead(status, { ...headers, "Content-Length": String(Buffer.byteLength(body)) });
  if (isRead) return void response.end(body);
  response.write(body);
  await discard(request);
  response.end();
}

/** Reads the rest of a body: until its end, or as long as the limits allow. */
function discard(request: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    let size = 0;
    const end = () => {
      clearTimeout(timer);
      request.off("data", count).pause();
      resolve();
    };
    const timer = setTimeout(end, DISCARD_MS);
    const count = (chunk: Uint8Array) => {
      size += chunk.length;
      if (size > DISCARD_BYTES) end();
    };
    for (const event of ["end", "close", "error"]) request.once(event, end);
    if (request.destroyed || request.readableEnded) return end();
    request.on("data", count).resume();
  });
}

/** A check for `allow`, from networks such as `192.0.2.0/24`, and addresses. */
export function networks(...allowed: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const text of allowed) {
    const [address = "", bits] = text.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    // Throws if it is none: a wrong setting must stop the program.
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, /^\d+$/.test(bits) ? Number(bits) : NaN, family);
  }
  return (address) => list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
}

function sourceOfNode(request: IncomingMessage): Source {
  const { secure, ip } = request as { secure?: boolean; ip?: string };
  const { encrypted } = request.socket as { encrypted?: boolean };
  const address = ip ?? request.socket.remoteAddress;
  return { secure: secure ?? encrypted === true, address };
}

function headersOf(request: IncomingMessage): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    pairs.push([request.rawHeaders[at] as string, request.rawHeaders[at + 1] as string]);
  }
  return pairs;
}

/** The body as it was received, or the answer if there is none. */
function rawBody(request: IncomingMessage, receiver: Receiver): Promise<Uint8Array> | Answer {
  const { body } = request as { body?: unknown };
  if (body instanceof Uint8Array) return Promise.resolve(body);
  if (body !== undefined && request.readableEnded) return receiver.bodyParsed();
  if (Number(request.headers["content-length"] ?? 0) > receiver.maxBodyBytes) {
    return receiver.tooLarge();
  }
  // Not `for await`: leaving that loop would close the connection before the answer is sent.
  return new Promise((resolve, reject) => {
    const bytes = new Bytes(receiver.maxBodyBytes);
    let settled = false;
    const settle = (action: () => void) => {
      if (!settled) action();
      settled = true;
    };
    request.on("data", (chunk: Uint8Array) => {
      if (settled || bytes.push(chunk)) return undefined;
      request.pause();
      return settle(() => reject(receiver.tooLarge()));
    });
    request.on("end", () => settle(() => resolve(bytes.all())));
    request.on("error", () => settle(() => reject(receiver.incomplete())));
    request.on("close", () => settle(() => reject(receiver.incomplete())));
  });
}
