// When and how often requests are repeated, and how long followers wait.

import { ApiError, ConnectionError } from "./errors.js";

/** A server that asks for more is not waited for: the caller gets the error with `retryAfter`. */
export const MAX_RETRY_AFTER_MS = 60_000;

/** Milliseconds to wait before the request is sent again; undefined if it must not be. */
export function retryDelay(
  error: unknown,
  attempt: number,
  method: string,
  conditional: boolean,
): number | undefined {
  const backoff = Math.min(500 * 2 ** attempt, 8000) * (0.5 + Math.random() / 2);
  // The server may have executed the request. POST and PATCH have an Idempotency-Key, and GET, PUT
  // and DELETE may be repeated. But a conditional PUT would be refused because of its own effect.
  const repeatable = !(conditional && (method === "PUT" || method === "DELETE"));
  if (error instanceof ConnectionError) return repeatable ? backoff : undefined;
  if (!(error instanceof ApiError)) return undefined;
  const { status, code } = error;
  const busy = code === "idempotency_key_in_use" || code === "action_in_progress";
  const refused = status === 429 || status === 503 || status === 408 || busy;
  const failed = status >= 500 && status !== 501 && status !== 505 && code !== "rule_failed";
  if (!refused && !(failed && repeatable)) return undefined;
  return error.retryAfter ?? backoff;
}

/** A server that asks for less gets that: it may be wrong, or there may be many followers. */
export const MIN_ASKED_MS = 1000;
/** No live service needs longer, and a longer timer than 24 days would end at once. */
export const MAX_ASKED_MS = 300_000;
const BASE_MS = 1000;
const MAX_MS = 30_000;

/** Delay before a follower reconnects: doubles from 1 s, with jitter, at most 30 s. */
export function reconnectDelay(failures: number, random = Math.random()): number {
  const base = Math.min(BASE_MS * 2 ** failures, MAX_MS / 2);
  return base + random * base;
}

/** Waits; rejects as soon as the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", cancel);
      resolve();
    }, ms);
    if (signal?.aborted) cancel();
    else signal?.addEventListener("abort", cancel, { once: true });
  });
}
