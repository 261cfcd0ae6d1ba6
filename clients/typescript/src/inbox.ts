// The durable queue between the receiver and the workers, as an interface, and one in memory for
// tests. `restive-client/node` has stores in a file and in SQLite.

import { bytesOf } from "./mac.js";
import { isBefore, orderOf, type Order } from "./order.js";

export interface NewEvent {
  id: string;
  type: string;
  /** JSON text, as it was received. */
  body: string;
  /**
   * Equal for all deliveries of the same event. Empty if it cannot be compared: a list may show an
   * event in another version than its endpoint receives.
   */
  fingerprint: string;
  /** `reconcile`: read from the provider's API. */
  source: "webhook" | "reconcile";
}

export interface QueuedEvent {
  id: string;
  type: string;
  body: string;
  /** Number of this attempt, from 1. */
  attempt: number;
  /** A newer state of its resource was processed before. */
  stale?: boolean;
}

export interface DeadEvent {
  id: string;
  type: string;
  attempts: number;
  error: string;
}

export interface InboxCounts {
  pending: number;
  done: number;
  dead: number;
}

export interface InboxStore {
  /**
   * Stores an event unless its id is known. Returns when it is durable. `different`: the id is
   * known with another fingerprint.
   */
  put(event: NewEvent): Promise<"stored" | "known" | "different">;
  /**
   * Takes one event that is due, for `leaseMs`: if it is neither completed nor failed by then,
   * because the process ended, it is due again. The stores of `restive-client` give out one event
   * of a resource (type and id of `data.object`) at a time, and set `stale`.
   */
  claim(now: number, leaseMs: number): Promise<QueuedEvent | undefined>;
  complete(id: string): Promise<void>;
  /** `retryAt` undefined: the event is dead until `retry`. */
  fail(id: string, error: string, retryAt: number | undefined): Promise<void>;
  /** Unix milliseconds at which the next event is due; undefined if none waits. */
  nextDue(): Promise<number | undefined>;
  counts(): Promise<InboxCounts>;
  dead(limit: number): Promise<DeadEvent[]>;
  /** Makes a dead event due again. */
  retry(id: string): Promise<boolean>;
  /**
   * Forgets completed events that were received before this time. The stores of `restive-client`
   * count only the time in which they are open, so a wrong clock makes them forget no id.
   */
  prune(before: number): Promise<number>;
  /** Small values that must survive a restart, such as the time of the last reconciliation. */
  setting(name: string): Promise<string | undefined>;
  setSetting(name: string, value: string): Promise<void>;
  /**
   * The clock of `claim`, `fail` and `nextDue`, in Unix milliseconds. Without it, workers use the
   * clock of the machine, and an event that fails while that is ahead is due too late.
   */
  now?(): number;
}

/** A clock that begins with that of the machine and does not jump when that is set. */
export function steadyClock(): () => number {
  const [time, begin] = [Date.now(), performance.now()];
  return () => Math.floor(time + performance.now() - begin);
}

/** Longer ids are refused: they are the key of an index. */
export const MAX_ID_BYTES = 255;

/** Whether a value can be the id of an event. */
export function isUsableId(id: unknown): id is string {
  if (typeof id !== "string" || id === "") return false;
  const bytes = bytesOf(id);
  // Half of a surrogate pair is no text: it would be stored as another id.
  return bytes.length <= MAX_ID_BYTES && new TextDecoder().decode(bytes) === id;
}

/** How long ids are remembered: longer than the provider keeps events (30 days and 7 more). */
export const REMEMBER_MS = 40 * 24 * 3600 * 1000;

/** Whether two fingerprints may be of the same event. */
export function isSame(one: string, other: string): boolean {
  return one === "" || other === "" || one === other;
}

export interface Entry extends Order {
  id: string;
  type: string;
  fingerprint: string;
  receivedAt: number;
  /** Absent when the event is done. */
  body?: string;
  state: "pending" | "done" | "dead";
  attempts: number;
  dueAt: number;
  error?: string;
}

/** Keeps everything in memory: for tests, and as the index of a store that has a journal. */
export class MemoryStore implements InboxStore {
  protected readonly entries = new Map<string, Entry>();
  protected readonly settings = new Map<string, string>();
  /** Ids of pending events in the order of their arrival, or of their last failure. */
  readonly #pending = new Set<string>();
  /** Resources with an event in progress, and when its lease ends. */
  readonly #busy = new Map<string, { id: string; until: number }>();
  /** The event with the newest processed state of each resource. */
  readonly #newest = new Map<string, Entry>();
  /** When the next event is due, by the last walk over all of them; 0 after a change. */
  #nextDue = 0;
  readonly #clock = steadyClock();

  now(): number {
    return this.#clock();
  }

  async put(event: NewEvent): Promise<"stored" | "known" | "different"> {
    const known = this.check(event);
    if (known) return known;
    this.insert(event, Date.now());
    return "stored";
  }

  protected check(event: NewEvent): "known" | "different" | undefined {
    const known = this.entries.get(event.id);
    if (!known) return undefined;
    return isSame(known.fingerprint, event.fingerprint) ? "known" : "different";
  }

  protected insert(event: Omit<NewEvent, "source">, at: number): void {
    this.remember(event, at);
    this.enqueue(event.id);
  }

  /** Makes the id known. `enqueue` lets `claim` take the event. */
  protected remember({ id, type, body, fingerprint }: Omit<NewEvent, "source">, at: number): void {
    const entry: Entry = {
      id,
      type,
      body,
      fingerprint,
      receivedAt: at,
      state: "pending",
      attempts: 0,
      dueAt: 0,
      ...orderOf(body),
    };
    this.#forgetOrder(this.entries.get(id));
    this.entries.set(id, entry);
  }

  protected enqueue(id: string): void {
    if (this.entries.get(id)?.state === "pending") this.#pending.add(id);
    this.#nextDue = 0;
  }

  async claim(now: number, leaseMs: number): Promise<QueuedEvent | undefined> {
    // An idle worker asks every second, however many wait.
    if (this.#nextDue > now) return undefined;
    let next = Infinity;
    for (const id of this.#pending) {
      const entry = this.entries.get(id) as Entry;
      const at = this.#dueAt(entry);
      next = Math.min(next, at);
      if (at > now) continue;
      this.#nextDue = 0;
      entry.dueAt = now + leaseMs;
      entry.attempts += 1;
      const { type, body = "", attempts, resource = "", revision } = entry;
      if (resource) this.#busy.set(resource, { id, until: entry.dueAt });
      const stale = isBefore(revision, this.#newest.get(resource)?.revision);
      return { id, type, body, attempt: attempts, stale };
    }
    this.#nextDue = next;
    return undefined;
  }

  /** Not while another event of its resource is in progress. */
  #dueAt({ dueAt, resource = "" }: Entry): number {
    return Math.max(dueAt, this.#busy.get(resource)?.until ?? 0);
  }

  /** Lets `claim` take another event of the resource. */
  #free({ id, resource = "" }: Entry): void {
    this.#nextDue = 0;
    if (this.#busy.get(resource)?.id === id) this.#busy.delete(resource);
  }

  /** Keeps the revision of the newest processed event only. */
  #rememberOrder(entry: Entry): void {
    const { resource, revision } = entry;
    if (resource === undefined) return;
    const newest = this.#newest.get(resource);
    // One of another kind replaces it: the provider has changed its format.
    const isOlder = revision === undefined || isBefore(revision, newest?.revision);
    if (isOlder) return this.#forgetOrder(entry);
    if (newest !== entry) this.#forgetOrder(newest);
    this.#newest.set(resource, entry);
  }

  #forgetOrder(entry: Entry | undefined): void {
    if (entry?.resource === undefined) return;
    if (this.#newest.get(entry.resource) === entry) this.#newest.delete(entry.resource);
    delete entry.resource;
    delete entry.revision;
  }

  /** Gives an event back that was claimed, without an attempt. */
  protected unclaim(id: string, dueAt: number): void {
    const entry = this.entries.get(id);
    if (entry?.state !== "pending") return;
    this.#free(entry);
    entry.attempts -= 1;
    entry.dueAt = dueAt;
  }

  async complete(id: string): Promise<void> {
    this.finish(id);
  }

  protected finish(id: string): void {
    const entry = this.entries.get(id);
    if (!entry) return;
    this.#free(entry);
    this.#rememberOrder(entry);
    entry.state = "done";
    delete entry.body;
    this.#pending.delete(id);
  }

  async fail(id: string, error: string, retryAt: number | undefined): Promise<void> {
    this.setFailed(id, error, retryAt);
  }

  protected setFailed(id: string, error: string, retryAt: number | undefined): void {
    const entry = this.entries.get(id);
    if (!entry || entry.state === "done") return;
    this.#free(entry);
    entry.error = error;
    const wasPending = this.#pending.delete(id);
    if (retryAt === undefined) {
      entry.state = "dead";
    } else {
      entry.dueAt = retryAt;
      // Behind the others, which would wait for it if it always fails.
      if (wasPending) this.#pending.add(id);
    }
  }

  async nextDue(): Promise<number | undefined> {
    if (this.#nextDue === 0) {
      let next = Infinity;
      for (const id of this.#pending) {
        next = Math.min(next, this.#dueAt(this.entries.get(id) as Entry));
      }
      this.#nextDue = next;
    }
    return this.#nextDue === Infinity ? undefined : this.#nextDue;
  }

  async counts(): Promise<InboxCounts> {
    const counts = { pending: 0, done: 0, dead: 0 };
    for (const { state } of this.entries.values()) counts[state] += 1;
    return counts;
  }

  async dead(limit: number): Promise<DeadEvent[]> {
    const dead: DeadEvent[] = [];
    for (const { id, type, attempts, error = "", state } of this.entries.values()) {
      if (state === "dead" && dead.length < limit) dead.push({ id, type, attempts, error });
    }
    return dead;
  }

  async retry(id: string): Promise<boolean> {
    return this.revive(id);
  }

  protected revive(id: string): boolean {
    const entry = this.entries.get(id);
    if (entry?.state !== "dead") return false;
    entry.state = "pending";
    entry.attempts = 0;
    entry.dueAt = 0;
    this.enqueue(id);
    return true;
  }

  async prune(before: number): Promise<number> {
    let count = 0;
    for (const [id, entry] of this.entries) {
      if (entry.state !== "done" || entry.receivedAt >= before) continue;
      this.#forgetOrder(entry);
      this.entries.delete(id);
      count += 1;
    }
    return count;
  }

  async setting(name: string): Promise<string | undefined> {
    return this.settings.get(name);
  }

  async setSetting(name: string, value: string): Promise<void> {
    this.settings.set(name, value);
  }
}
