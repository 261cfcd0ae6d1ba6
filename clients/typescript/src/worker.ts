// Takes events from the inbox and gives them to the handler, with retries.

import type { Event } from "./event.js";
import type { InboxStore, QueuedEvent } from "./inbox.js";
import { report } from "./report.js";
import { pause } from "./retry.js";

export interface HandlerContext {
  /** The id by which the inbox knows the event: the same in every attempt. See `Receiver`. */
  id: string;
  /** Number of this attempt, from 1. */
  attempt: number;
  /** A newer state of the resource was processed before. */
  stale: boolean;
  /** Aborted when the time limit of the handler is reached. */
  signal: AbortSignal;
}

/**
 * Called at least once for each event, and again after an error or a crash. To make its effect
 * happen exactly once, write the id of the event in the same transaction: see `applyOnce`.
 */
export type Handler = (event: Event, context: HandlerContext) => void | Promise<void>;

export interface WorkerOptions {
  /** Events that are handled at the same time. Default: 1. */
  concurrency?: number;
  /** Milliseconds for one call of the handler. Then its signal is aborted. Default: 30,000. */
  timeout?: number;
  /**
   * Milliseconds that an aborted handler has to end. A call that resolves in them has succeeded;
   * the others have failed. A handler that still runs afterwards may run beside the next attempt.
   * Default, and at most: 15,000.
   */
  grace?: number;
  /**
   * Milliseconds to wait after each failure. After the last one, the event is dead. Default: 1 s,
   * doubled up to an hour, for 20 attempts.
   */
  retries?: readonly number[];
  /**
   * Events whose resource has a newer state already. `deliver` (default): the handler gets them,
   * with `context.stale`. `skip`: it does not, and they are done. Right for a copy of the resource.
   */
  stale?: "deliver" | "skip";
  /**
   * Called after each failed attempt, before the store has the result, and when the store refuses a
   * result, which is then written again. Default: writes a line with `console.error`. If it fails,
   * that is ignored.
   */
  onError?: (error: unknown, event: QueuedEvent, dead: boolean) => void | Promise<void>;
}

/**
 * 1, 2, 4 seconds, up to an hour. 20 attempts take about 8 hours, a night without an operator.
 */
const RETRIES = Array.from({ length: 19 }, (_, number) => Math.min(1_000 * 2 ** number, 3_600_000));
/** The lease outlives the time limit, so that no event is handled twice at the same time. */
const LEASE_MARGIN_MS = 30_000;
/** An aborted handler has ended, or is given up, well before its lease ends. */
const MAX_GRACE_MS = LEASE_MARGIN_MS / 2;
/** How often the inbox is looked at without a wake-up: other processes may fill it. */
const IDLE_MS = 1_000;
const MAX_ERROR_CHARS = 1_000;
/**
 * How often the text of an error is offered to the store. Then it gets the error's name alone: the
 * text may be one that it never takes.
 */
const TEXT_TRIES = 3;
/** Pause before a result that the store did not take is written again. */
const STORE_RETRY_MS = 1_000;
/**
 * How long events are handled before timers and requests of the process have their turn. A store
 * and a handler that wait for nothing would keep it from them while a backlog lasts.
 */
const TURN_MS = 10;

export class Worker {
  readonly #store: InboxStore;
  readonly #handler: Handler;
  readonly #options: Required<Omit<WorkerOptions, "onError">> & Pick<WorkerOptions, "onError">;
  readonly #stop = new AbortController();
  readonly #loops: Promise<void>[] = [];
  /** Ids of the events in progress. */
  readonly #running = new Set<string>();

  constructor(store: InboxStore, handler: Handler, options: WorkerOptions = {}) {
    this.#store = store;
    this.#handler = handler;
    const { stale = "deliver" } = options;
    const grace = Math.min(options.grace ?? MAX_GRACE_MS, MAX_GRACE_MS);
    this.#options = { concurrency: 1, timeout: 30_000, retries: RETRIES, ...options, stale, grace };
    if (!["deliver", "skip"].includes(stale)) {
      throw new TypeError(`stale is "deliver" or "skip", not ${stale}`);
    }
  }

  /** Begins to work, in the background. */
  start(): this {
    for (let count = 0; count < this.#options.concurrency; count += 1) {
      this.#loops.push(this.#loop());
    }
    return this;
  }

  /** Ends after the calls in progress. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#loops);
  }

  /** Handles one event that is due. False if there is none. */
  async once(): Promise<boolean> {
    const lease = this.#options.timeout + LEASE_MARGIN_MS;
    const leasedUntil = performance.now() + lease;
    const event = await this.#store.claim(this.#now(), lease);
    // A clock that was set may end a lease early.
    if (!event || this.#running.has(event.id)) return false;
    this.#running.add(event.id);
    try {
      await this.#write(event, await this.#result(event, leasedUntil));
    } finally {
      this.#running.delete(event.id);
    }
    return true;
  }

  #now(): number {
    return this.#store.now?.() ?? Date.now();
  }

  /** Calls the handler. Returns what writes the result to the store. */
  async #result(event: QueuedEvent, leasedUntil: number): Promise<() => Promise<void>> {
    const done = () => this.#store.complete(event.id);
    if (event.stale && this.#options.stale === "skip") return done;
    try {
      if (event.attempt > this.#options.retries.length + 1) {
        throw new Error("the process ended during the last attempt");
      }
      await this.#call(event);
    } catch (error) {
      return this.#failed(event, error, leasedUntil);
    }
    return done;
  }

  /**
   * Repeats it: because the disk is full, an event that was handled must not be handled again, and
   * one that has failed must not wait until its lease ends.
   */
  async #write(event: QueuedEvent, result: () => Promise<void>): Promise<void> {
    const { signal } = this.#stop;
    for (;;) {
      try {
        return await result();
      } catch (error) {
        if (signal.aborted) throw error;
        this.#report(error, event, false);
        await pause(STORE_RETRY_MS, signal).catch(() => undefined);
      }
    }
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stop;
    let turn = performance.now();
    while (!signal.aborted) {
      if (performance.now() - turn >= TURN_MS) {
        await nextTurn();
        turn = performance.now();
      }
      let wait = IDLE_MS;
      try {
        wait = (await this.once()) ? 0 : await this.#idle();
      } catch (error) {
        // The store failed. The event keeps its lease and is due again afterwards.
        this.#report(error, { id: "", type: "", body: "", attempt: 0 }, false);
      }
      if (wait > 0) await pause(wait, signal).catch(() => undefined);
    }
  }

  async #idle(): Promise<number> {
    const next = await this.#store.nextDue().catch(() => undefined);
    const wait = next === undefined ? IDLE_MS : next - this.#now();
    return Math.min(Math.max(wait, 20), IDLE_MS);
  }

  async #call(event: QueuedEvent): Promise<void> {
    const { timeout, grace } = this.#options;
    const abort = new AbortController();
    const { id, attempt, stale = false } = event;
    const context = { id, attempt, stale, signal: abort.signal };
    const parsed = JSON.parse(event.body) as Event;
    const call = (async () => this.#handler(parsed, context))();
    if (await hasSettled(call, timeout)) return await call;
    const late = new Error(`the handler did not end within ${timeout} ms`);
    abort.abort(late);
    // The next attempt must not run beside this one.
    if (!(await hasSettled(call, grace))) throw late;
    await call.catch(() => {
      throw late;
    });
  }

  /** Reports it: the store may refuse the result for long. */
  #failed(event: QueuedEvent, error: unknown, leasedUntil: number): () => Promise<void> {
    const delay = this.#options.retries[event.attempt - 1];
    const retryAt = delay === undefined ? undefined : this.#now() + delay;
    this.#report(error, event, delay === undefined);
    let tries = 0;
    return async () => {
      // After the lease, the event is due again, and another process may have it.
      if (tries > 0 && performance.now() >= leasedUntil) return;
      tries += 1;
      const text = tries > TEXT_TRIES ? nameOf(error) : textOf(error);
      await this.#store.fail(event.id, text, retryAt);
    };
  }

  #report(error: unknown, event: QueuedEvent, dead: boolean): void {
    report(() => (this.#options.onError ?? print)(error, event, dead));
  }
}

function print(error: unknown, { type, id, attempt }: QueuedEvent, dead: boolean): void {
  const ends = dead ? "the event is dead until it is retried" : "it is tried again";
  // Not the error itself: what it has besides may be a request with its credentials.
  const text = (error as Error)?.stack ?? String(error);
  console.error(`restive: attempt ${attempt} to handle ${type} ${id} failed; ${ends}: ${text}`);
}

/** What the store gets. Half of a surrogate pair, from a body, is not text everywhere. */
function textOf(error: unknown): string {
  try {
    const text = String((error as Error)?.message ?? error).slice(0, MAX_ERROR_CHARS);
    return new TextDecoder().decode(new TextEncoder().encode(text));
  } catch {
    return nameOf(error);
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.constructor.name : typeof error;
}

/** Browsers have no `setImmediate`, and make a timer some milliseconds late. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => (globalThis.setImmediate ?? setTimeout)(resolve));
}

/** Whether it resolves or rejects within the time. */
async function hasSettled(call: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  const settled = call.then(
    () => true,
    () => true,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    clearTimeout(timer);
  }
}
