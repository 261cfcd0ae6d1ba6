// For Node: the receiver as a handler for Express or `node:http`, and the durable stores.

import type { IncomingMessage, ServerResponse } from "node:http";

import { join, type Answer, type Receiver } from "./receiver.js";

export { FileStore } from "./node/file.js";
export { SqliteStore, applyOnce } from "./node/sqlite.js";
export type { SqliteDatabase } from "./node/sqlite.js";

/**
 * `app.post("/hook", nodeHandler(receiver))`, or the listener of `http.createServer`. It reads the
 * body itself: mount it before `express.json()`. After `express.raw({ type: "*" })` it also works.
 */
export function nodeHandler(
  receiver: Receiver,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    let answer: Answer;
    try {
      const body = await rawBody(request, receiver);
      answer =
        body instanceof Uint8Array
          ? await receiver.accept(request.method ?? "", headersOf(request), body)
          : body;
    } catch (refused) {
      answer = refused as Answer;
    }
    // What the client still sends is not read.
    if (!request.complete) response.setHeader("Connection", "close");
    response.writeHead(answer.status, answer.headers).end(answer.body);
  };
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
    const chunks: Uint8Array[] = [];
    let size = 0;
    let settled = false;
    const settle = (action: () => void) => {
      if (!settled) action();
      settled = true;
    };
    request.on("data", (chunk: Uint8Array) => {
      size += chunk.length;
      if (size <= receiver.maxBodyBytes) return chunks.push(chunk);
      request.pause();
      return settle(() => reject(receiver.tooLarge()));
    });
    request.on("end", () => settle(() => resolve(join(chunks, size))));
    request.on("error", () => settle(() => reject(receiver.incomplete())));
    request.on("close", () => settle(() => reject(receiver.incomplete())));
  });
}
