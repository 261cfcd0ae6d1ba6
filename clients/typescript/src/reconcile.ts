// Compares the inbox with the provider's list of events, and queues what is missing: deliveries
// that were lost, or sent while the endpoint was disabled.

import type { Event } from "./event.js";
import type { InboxStore } from "./inbox.js";
import { pause } from "./retry.js";

export interface EventLister {
  list<T>(path: string, query?: object): AsyncIterable<T>;
}

export interface ReconcileOptions {
  /** A `Client`, or anything that lists events. */
  client: EventLister;
  store: InboxStore;
  /** Types or patterns, as `enabled_events` of the endpoint has them. Default: all. */
  types?: readonly string[];
  /** How far back the first run looks, in seconds. Default: 3 days. */
  firstSeconds?: number;
  /** How far each run overlaps the last one, in seconds. Default: 300. */
  overlapSeconds?: number;
  path?: string;
}

const SETTING = "reconciled_until";
/** Events of the service itself are delivered only to endpoints that name them. */
const OWN = /^(webhook_endpoint|replay|erasure)\./;

/** One comparison. Returns how many events were missing and are queued now. */
export async function reconcile(options: ReconcileOptions): Promise<number> {
  const { client, store, types, path = "/v1/events" } = options;
  const { firstSeconds = 3 * 86_400, overlapSeconds = 300 } = options;
  const now = Math.floor(Date.now() / 1000);
  // A position from the future would skip everything until then.
  let newest = Math.min(Number(await store.setting(SETTING)) || 0, now);
  const first = now - firstSeconds;
  const since = newest > 0 ? newest - overlapSeconds : first;
  const all = types === undefined || types.includes("*");
  const query = { min_created: since, limit: 100, ...(!all && { type: types }) };
  let missing = 0;
  for await (const event of client.list<Event>(path, query)) {
    if (all && OWN.test(event.type) && !types?.includes(event.type)) continue;
    const { id, type } = event;
    // The clock of the provider, which may differ from the one here. An event from the future is
    // queued, but is no position.
    if (event.created <= now) newest = Math.max(newest, event.created);
    const body = JSON.stringify(event);
    const result = await store.put({ id, type, body, fingerprint: "", source: "reconcile" });
    if (result === "stored") missing += 1;
  }
  // Only after the last page: a run that fails is repeated as a whole.
  await store.setSetting(SETTING, String(newest));
  return missing;
}

/** Repeats `reconcile` until the signal is aborted. */
export async function reconcileEvery(
  seconds: number,
  options: ReconcileOptions & {
    signal: AbortSignal;
    onResult?: (missing: number) => void;
    onError?: (error: unknown) => void;
  },
): Promise<void> {
  while (!options.signal.aborted) {
    try {
      options.onResult?.(await reconcile(options));
    } catch (error) {
      options.onError?.(error);
    }
    await pause(seconds * 1000, options.signal).catch(() => undefined);
  }
}
