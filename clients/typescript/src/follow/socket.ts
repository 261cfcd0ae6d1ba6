// The WebSocket channel.

import type { Client } from "../client.js";
import { ApiError, FollowError, InvalidResponseError } from "../errors.js";
import type { Connection, End, FollowOptions, Item, Message } from "./message.js";
import { isFinal, openStream, refusal, subscription } from "./stream.js";

/** Messages that wait for the consumer. With more, the socket is closed and resumed later. */
const MAX_QUEUED = 1000;
/** And their length, except that one message may be longer: the platform has read it already. */
const MAX_QUEUED_CHARS = 16 * 1024 * 1024;
/** A page cannot see the pings of the server, so it sends its own after this silence. */
const PING_MS = 30_000;
const PONG_MS = 20_000;

export async function* socket(
  client: Client,
  options: FollowOptions,
  connection: Connection,
): AsyncGenerator<Item, End> {
  const token = connection.token ?? (await channelToken(client, options));
  const asked = { ...connection, token };
  const query = subscription(client, options, asked);
  const url = client.url.replace(/^http/, "ws") + (options.socket ?? "/ws") + query;
  const Socket = options.WebSocket ?? globalThis.WebSocket;
  if (!Socket) {
    return { fatal: new FollowError("this platform has no WebSocket: pass one, or use sse") };
  }
  const channel = new Socket(url, ["restive.v1", `access_token.${token}`]);
  const queue = new Queue(channel);
  const cancel = () => queue.end({});
  connection.abort.signal.addEventListener("abort", cancel);
  let opened = false;
  try {
    for (;;) {
      const next = await queue.next();
      if ("end" in next) {
        if (opened || connection.abort.signal.aborted) return next.end;
        // A page does not learn why a handshake failed. A stream fails for the same reasons.
        return (await probe(client, options, asked)) ?? next.end;
      }
      const item = itemOf(next.text);
      if (!item) continue;
      if ("open" in item) opened = true;
      yield item;
    }
  } finally {
    connection.abort.signal.removeEventListener("abort", cancel);
    queue.close();
  }
}

/** Turns the callbacks of a socket into values that are read one by one. */
class Queue {
  readonly #texts: string[] = [];
  #chars = 0;
  readonly #socket: WebSocket;
  #end: End | undefined;
  #wake: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout>;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    this.#timer = setTimeout(() => this.end({ error: new Error("no handshake") }), PONG_MS);
    socket.onmessage = ({ data }) => {
      this.#expect();
      const text = String(data);
      this.#chars += text.length;
      const isFull = this.#texts.length >= MAX_QUEUED || this.#chars > MAX_QUEUED_CHARS;
      // The server resumes after the last message that the consumer has taken.
      if (isFull && this.#texts.length > 0) this.end({ now: true });
      else this.#texts.push(text);
      this.#wake?.();
    };
    // The package `ws` ends the process for an error that has no listener, also after `close`. What
    // failed is in the close event that follows.
    socket.onerror = () => undefined;
    socket.onclose = ({ code, reason }) => this.end(endOf(code, reason));
  }

  /** The next text; at the end, why it ended. Texts that came before the end are first. */
  async next(): Promise<{ text: string } | { end: End }> {
    for (;;) {
      const text = this.#texts.shift();
      if (text !== undefined) {
        this.#chars -= text.length;
        return { text };
      }
      if (this.#end) return { end: this.#end };
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  end(end: End): void {
    this.#end ??= end;
    this.close();
    this.#wake?.();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
  }

  #expect(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = setTimeout(() => this.end({ error: new Error("no pong") }), PONG_MS);
      if (this.#socket.readyState === 1) this.#socket.send('{"type":"ping"}');
    }, PING_MS);
  }
}

/** The ranges of close codes are part of the protocol. */
export function endOf(code: number, reason: string): End {
  const error = new Error(`the socket was closed with ${code} ${reason}`);
  if (code === 4201) return { now: true, refresh: true, error };
  if (code >= 4200 && code < 4300) return { now: true, error };
  if (code >= 4000 && code < 4100) return { fatal: new FollowError(error.message) };
  // The server drains: everybody reconnects, so not at the same moment.
  if (code === 1012) return { delay: 1000 + Math.random() * 4000, error };
  const ours = [1002, 1003, 1007, 1009].includes(code);
  return ours ? { fatal: new FollowError(error.message) } : { error };
}

function itemOf(text: string): Item | undefined {
  const message = JSON.parse(text) as Message;
  if (typeof message?.type !== "string") throw new InvalidResponseError("not a message");
  const { type, position } = message;
  if (type === "welcome") return { open: true, ...(position !== undefined && { position }) };
  if (type === "ack" || type === "pong" || type === "error") return undefined;
  return { message };
}

/** A page must not have the key; a program with a key gets itself a token. */
async function channelToken(client: Client, options: FollowOptions): Promise<string> {
  const key = (await client.credential(false)) ?? "";
  if (key.startsWith("ct_")) return key;
  const body = { ...(options.user !== undefined && { user: options.user }) };
  try {
    return (await client.post<{ token: string }>("/v1/channel-tokens", body)).token;
  } catch (cause) {
    if (!(cause instanceof ApiError && isFinal(cause))) throw cause;
    throw new FollowError(`no channel token: ${cause.message}`, { cause });
  }
}

async function probe(
  client: Client,
  options: FollowOptions,
  connection: Connection,
): Promise<End | undefined> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), PONG_MS);
  try {
    const response = await openStream(client, options, { ...connection, abort });
    return await refusal(response, client, options, abort.signal);
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}
