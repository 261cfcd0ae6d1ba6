// Server-sent events over `fetch`, which can send the credentials in a header and sees the status.

import { chunksOf, textOf } from "../body.js";
import { reasonOf, type Client } from "../client.js";
import { ApiError, FollowError, InvalidResponseError, apiError } from "../errors.js";
import { searchParams } from "../query.js";
import type { Connection, End, FollowOptions, Item } from "./message.js";
import { SseParser, type Block } from "./sse.js";

/** The server sends at least a comment every 25 s; without one the connection is dead. */
export const SILENCE_MS = 60_000;

export async function* stream(
  client: Client,
  options: FollowOptions,
  connection: Connection,
): AsyncGenerator<Item, End> {
  const { abort } = connection;
  let timer = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const response = await openStream(client, options, connection);
    const refused = await refusal(response, client, options, abort.signal);
    if (refused) return refused;
    if (!/^text\/event-stream\b/.test(response.headers.get("content-type") ?? "")) {
      return { error: new InvalidResponseError("the response is not an event stream") };
    }
    const body = response.body as ReadableStream<Uint8Array>;
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    const parser = new SseParser();
    const last: Block = {};
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE_MS);
    for await (const chunk of chunksOf(body, abort.signal)) {
      // A slow consumer is no silent server.
      clearTimeout(timer);
      for (const block of parser.push(decoder.decode(chunk, { stream: true }))) {
        if (block.retry !== undefined) last.retry = block.retry;
        if (block.event === "stream.closing") return closing(block);
        const item = itemOf(block, last);
        if (item) yield item;
      }
      timer = setTimeout(() => abort.abort(), SILENCE_MS);
    }
    return last.retry === undefined ? {} : { delay: last.retry };
  } catch (error) {
    return { error: new Error(`the event stream broke: ${reasonOf(error)}`, { cause: error }) };
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/** The parameters of a subscription, the same for streams and sockets. */
export function subscription(
  client: Client,
  options: FollowOptions,
  { position, token }: Connection,
): string {
  return searchParams({
    types: options.types,
    resource: options.resource,
    parent: options.parent,
    since: position,
    version: client.version,
    // The token names its user.
    user: token === undefined ? options.user : undefined,
  });
}

export function openStream(
  client: Client,
  options: FollowOptions,
  connection: Connection,
): Promise<Response> {
  const query = subscription(client, options, connection);
  const url = `${client.url}${options.mount ?? "/api"}/events${query}`;
  const init = { headers: { Accept: "text/event-stream" }, signal: connection.abort.signal };
  return client.fetch(url, init, connection.token);
}

/** What to do after an error status; undefined after a success. */
export async function refusal(
  response: Response,
  client: Client,
  options: FollowOptions,
  signal: AbortSignal,
): Promise<End | undefined> {
  if (response.ok) return undefined;
  const text = await textOf(response, signal);
  const error = apiError(response.status, response.headers, text);
  const renewable = options.token !== undefined || client.canRenew;
  if (error.status === 401 && renewable) return { refresh: true, now: true, error };
  if (isFinal(error))
    return { fatal: new FollowError(`refused: ${error.message}`, { cause: error }) };
  return { error, ...(error.retryAfter !== undefined && { delay: error.retryAfter }) };
}

/** A proxy in between may fail with any status, but only the service sends codes. */
export function isFinal(error: ApiError): boolean {
  return error.status < 500 && error.status !== 429 && error.status !== 408 && error.code !== "";
}

function closing(block: Block): End {
  const { reason } = JSON.parse(block.data ?? "{}") as { reason?: string };
  if (reason === "key_revoked") return { fatal: new FollowError("the key was revoked") };
  return reason === "token_expired" ? { now: true, refresh: true } : {};
}

/** The first block with an id is the greeting. */
function itemOf(block: Block, last: Block): Item | undefined {
  const first = last.id === undefined && block.id !== undefined;
  if (block.id !== undefined) last.id = block.id;
  if (block.data === undefined) {
    if (block.id === undefined) return undefined;
    return first ? { open: true, position: block.id } : { position: block.id };
  }
  const data = JSON.parse(block.data);
  const type = block.event ?? "message";
  if (type === "typing" || type === "online") return { message: { ...data, type } };
  return { message: { type, data, ...(block.id !== undefined && { position: block.id }) } };
}
