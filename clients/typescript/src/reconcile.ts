// Compares the inbox with the provider's list of events, and queues what is missing: deliveries
// that were lost, or sent while the endpoint was disabled.

import { Chronology, type Listed } from "./chronology.js";
import type { Event } from "./event.js";
import { isUsableId, type InboxStore } from "./inbox.js";
import { report } from "./report.js";
import { pause } from "./retry.js";

export interface EventLister {
  /** The query asks for the oldest first, `sort: "created"`. The newest first is right, too. */
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
  /**
   * Called for each entry of the list that is no event with a usable id. It is left out. If the
   * call fails, that is ignored.
   */
  onSkipped?: (entry: unknown) => void | Promise<void>;
}

const SETTING = "reconciled_until";
/**
 * Objects of the service itself. Their events are delivered only to endpoints that name them, and a
 * ping only to the endpoint that it tests.
 */
const OWN = ["webhook_endpoint", "replay", "erasure", "ping"];

/** One comparison. Returns how many events were missing and are queued now. */
export async function reconcile(options: ReconcileOptions): Promise<number> {
  const { client, store, types = [], path = "/v1/events" } = options;
  const { firstSeconds = 3 * 86_400, overlapSeconds = 300 } = options;
  const now = Math.floor(Date.now() / 1000);
  const stored = Number(await store.setting(SETTING)) || 0;
  // A position from the future says nothing about what was read: the run begins as the first one.
  let newest = stored > now + overlapSeconds ? 0 : Math.min(stored, now);
  const since = newest > 0 ? newest - overlapSeconds : now - firstSeconds;
  const all = types.length === 0 || types.includes("*");
  const query = { min_created: since, sort: "created", limit: 100, ...(!all && { type: types }) };
  const chronology = new Chronology();
  let missing = 0;
  const put = async (events: readonly Listed[]) => {
    for (const { created, ...event } of events) {
      // The clock of the provider, which may differ from the one here. An event from the future is
      // queued, but is no position.
      if (created !== undefined && created <= now) newest = Math.max(newest, created);
      if ((await store.put(event)) === "stored") missing += 1;
    }
  };
  for await (const event of client.list<Partial<Event> | null>(path, query)) {
    const { id } = event ?? {};
    // One that cannot be stored must not stop the others.
    if (!isUsableId(id)) {
      report(() => options.onSkipped?.(event));
      continue;
    }
    const type = typeof event?.type === "string" ? event.type : "";
    if (all && !isSent(type, types)) continue;
    const created = Number.isSafeInteger(event?.created) ? event?.created : undefined;
    const body = JSON.stringify(event);
    const listed = { id, type, body, fingerprint: "", source: "reconcile", created } as const;
    await put(chronology.push(listed));
  }
  await put(chronology.rest());
  // Only after the last page: a run that fails is repeated as a whole.
  await store.setSetting(SETTING, String(newest));
  return missing;
}

/** Whether a webhook for `*`, and for the types named beside it, would have brought this type. */
function isSent(type: string, types: readonly string[]): boolean {
  if (!OWN.includes(type.split(".")[0] as string)) return true;
  return types.some((one) => {
    const isPattern = one.endsWith("*") && one !== "*";
    return isPattern ? type.startsWith(one.slice(0, -1)) : one === type;
  });
}

/**
 * Repeats `reconcile` until the signal is aborted. `onError` gets the errors of `reconcile` and of
 * `onResult`; its own are ignored.
 */
export async function reconcileEvery(
  seconds: number,
  options: ReconcileOptions & {
    signal: AbortSignal;
    onResult?: (missing: number) => void | Promise<void>;
    onError?: (error: unknown) => void | Promise<void>;
  },
): Promise<void> {
  const failed = (error: unknown) => report(() => options.onError?.(error));
  while (!options.signal.aborted) {
    try {
      const missing = await reconcile(options);
      report(() => options.onResult?.(missing), failed);
    } catch (error) {
      failed(error);
    }
    await pause(seconds * 1000, options.signal).catch(() => undefined);
  }
}
