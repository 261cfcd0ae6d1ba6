// The follower: one loop for all channels. It connects, resumes after the last message that it has
// yielded, waits between attempts and reports gaps.

import type { Client } from "../client.js";
import { FollowError } from "../errors.js";
import { report } from "../report.js";
import { MAX_ASKED_MS, MIN_ASKED_MS, pause, reconnectDelay } from "../retry.js";
import {
  RESET,
  isPast,
  type Connection,
  type End,
  type FollowOptions,
  type FollowState,
  type Item,
  type Message,
  type Reset,
} from "./message.js";
import { poll } from "./poll.js";
import { socket } from "./socket.js";
import { stream } from "./stream.js";

/** A connection that ends sooner may be refused for a reason that reconnecting does not change. */
const SHORT_MS = 1000;
/** After a connection that lasted longer, or had a message, delays begin again at the shortest. */
const STEADY_MS = 5000;

const CHANNELS = { sse: stream, websocket: socket, poll };

export type Channel = (
  client: Client,
  options: FollowOptions,
  connection: Connection,
) => AsyncGenerator<Item, End>;

/** Use it in one `for await` loop. Leaving the loop, or `close`, ends the connection. */
export class Follower implements AsyncIterable<Message> {
  /** Position of the last message that was yielded. */
  position: string | undefined;
  readonly #client: Client;
  readonly #options: FollowOptions;
  readonly #stop = new AbortController();
  #token: string | undefined;
  #started = false;
  /** Attempts since the last connection that worked. */
  #failures = 0;

  constructor(client: Client, options: FollowOptions) {
    this.#client = client;
    this.#options = options;
    if (options.since !== undefined) this.position = String(options.since);
    const { signal } = options;
    if (signal?.aborted) this.close();
    signal?.addEventListener("abort", () => this.close(), { once: true });
    if (options.channel === "poll" && !options.feed) {
      throw new TypeError('channel "poll" needs the name of a feed');
    }
  }

  /** Ends the loop. */
  close(): void {
    this.#stop.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void> {
    if (this.#started) throw new TypeError("a follower can be iterated once");
    this.#started = true;
    const { positions } = this.#options;
    this.position ??= (await positions?.load()) ?? undefined;
    let short = 0;
    while (!this.#stop.signal.aborted) {
      this.#report({ state: "connecting" });
      const began = performance.now();
      let opened = false;
      const end = yield* this.#connect(() => {
        opened = true;
        this.#report({ state: "open" });
      });
      if (this.#stop.signal.aborted) return;
      if (end.fatal) throw end.fatal;
      if (end.refresh) await this.#renew();
      const lasted = performance.now() - began;
      if (opened && lasted >= STEADY_MS) this.#failures = 0;
      short = lasted < SHORT_MS ? short + 1 : 0;
      const atOnce = end.now && (opened || end.refresh) && short < 2;
      const wish = end.delay;
      const asked = wish === undefined ? 0 : Math.min(Math.max(wish, MIN_ASKED_MS), MAX_ASKED_MS);
      let delay = atOnce ? 0 : (opened && asked) || reconnectDelay(this.#failures);
      if (!opened) delay = Math.max(delay, asked);
      if (!atOnce) this.#failures += 1;
      this.#report({ state: "waiting", delay, error: end.error });
      if (delay) await pause(delay, this.#stop.signal).catch(() => undefined);
    }
  }

  /** One connection, from its begin to its end. */
  async *#connect(onOpen: () => void): AsyncGenerator<Message, End> {
    const abort = new AbortController();
    const cancel = () => abort.abort();
    this.#stop.signal.addEventListener("abort", cancel);
    const { channel = "sse", positions } = this.#options;
    try {
      const connection = { position: this.position, token: await this.#newToken(), abort };
      const items = CHANNELS[channel](this.#client, this.#options, connection);
      for (;;) {
        const step = await items.next();
        if (this.#stop.signal.aborted) return {};
        if (step.done) return step.value;
        const item = step.value;
        if ("open" in item) onOpen();
        const message = "message" in item ? item.message : undefined;
        const position = message ? message.position : (item as { position?: string }).position;
        // The first position of a resumed connection may be after a gap that the next message
        // reports, so only that message may move the position there.
        if ("open" in item && this.position !== undefined) continue;
        if (message?.type === RESET) {
          await this.#reset(message);
          if (!this.#options.onReset) yield message;
        } else if (message) {
          if (position !== undefined && isPast(position, this.position)) continue;
          if (position !== undefined) this.position = position;
          this.#failures = 0;
          yield message;
        } else if (position === undefined || isPast(position, this.position)) {
          continue;
        } else {
          this.position = position;
        }
        if (position !== undefined && positions) await this.#save(position);
      }
    } catch (error) {
      return error instanceof FollowError ? { fatal: error } : { error };
    } finally {
      this.#stop.signal.removeEventListener("abort", cancel);
      abort.abort();
    }
  }

  #report(state: FollowState): void {
    report(() => this.#options.onState?.(state));
  }

  async #reset(message: Message): Promise<void> {
    try {
      await this.#options.onReset?.(message.data as Reset);
    } catch (cause) {
      throw new FollowError("onReset failed; the position stays before the gap", { cause });
    }
    // Not before the callback: if it fails, the gap is reported again after a restart.
    this.position = message.position ?? this.position;
  }

  async #save(position: string): Promise<void> {
    try {
      await this.#options.positions?.save(position);
    } catch (cause) {
      throw new FollowError("the position was not saved", { cause });
    }
  }

  /** A function for tokens is asked by the next connection, one for keys now. */
  async #renew(): Promise<void> {
    this.#token = undefined;
    // It may fail for a moment, as a connection may: the next attempt asks again.
    if (!this.#options.token) await this.#client.credential(true).catch(() => undefined);
  }

  async #newToken(): Promise<string | undefined> {
    this.#token ??= await this.#options.token?.();
    return this.#token;
  }
}
