// Long polls of a feed. Each response has new records, or none after 25 s.

import { textOf } from "../body.js";
import { reasonOf, type Client } from "../client.js";
import { InvalidResponseError } from "../errors.js";
import { path } from "../path.js";
import { searchParams } from "../query.js";
import { MIN_ASKED_MS, pause } from "../retry.js";
import { RESET, type Connection, type End, type FollowOptions, type Item } from "./message.js";
import { SILENCE_MS, refusal } from "./stream.js";

/** Delay after a network error: a poll is cheap, but not at full speed against a dead server. */
const ERROR_MS = 3000;
/** A position that no log reaches: the answer is the current one. */
const BEYOND = Number.MAX_SAFE_INTEGER;

interface FeedRecord {
  id: number;
  object: string;
}

export async function* poll(
  client: Client,
  options: FollowOptions,
  connection: Connection,
): AsyncGenerator<Item, End> {
  let { position } = connection;
  let opened = false;
  try {
    for (;;) {
      const [since, began] = [position, performance.now()];
      const { response, text, end } = await request(client, options, connection, position);
      if (end) return end;
      const records = JSON.parse(text) as FeedRecord[];
      const here = response.headers.get("x-stream-position");
      if (!Array.isArray(records) || here === null) throw new InvalidResponseError("not a poll");
      const gap = response.headers.get("x-stream-gap") === "true" && position !== undefined;
      if (!opened) yield { open: true, ...(position === undefined && { position: here }) };
      opened = true;
      if (gap) {
        const refetch = [path`/v1/${options.feed ?? ""}`];
        const data = { reason: "position_unknown", requested: position, resumed_at: here, refetch };
        yield { message: { type: RESET, data, position: here } };
      }
      if (gap || position === undefined) position = here;
      const isQuick = performance.now() - began < MIN_ASKED_MS;
      const epoch = here.slice(0, here.lastIndexOf(".") + 1);
      for (const data of records) {
        position = epoch + data.id;
        yield { message: { type: data.object, data, position } };
      }
      // The first request asks for the position, and is answered at once.
      const isEmpty = since !== undefined && position === since;
      if (isEmpty && isQuick) await pause(MIN_ASKED_MS, connection.abort.signal);
    }
  } catch (error) {
    const broken = new Error(`the poll broke: ${reasonOf(error)}`, { cause: error });
    return { error: broken, delay: ERROR_MS * (1 + Math.random() / 3) };
  }
}

async function request(
  client: Client,
  options: FollowOptions,
  { token, abort }: Connection,
  position?: string,
): Promise<{ response: Response; text: string; end: End | undefined }> {
  const query = {
    since: position ?? BEYOND,
    wait: true,
    version: client.version,
    user: token === undefined ? options.user : undefined,
  };
  const mount = options.mount ?? "/api";
  const url = client.url + mount + path`/${options.feed ?? ""}` + searchParams(query);
  const timer = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const init = { headers: { Accept: "application/json" }, signal: abort.signal };
    const response = await client.fetch(url, init, token);
    const end = await refusal(response, client, options, abort.signal);
    return { response, end, text: end ? "" : await textOf(response, abort.signal) };
  } finally {
    clearTimeout(timer);
  }
}
