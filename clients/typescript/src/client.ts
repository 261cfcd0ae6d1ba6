// The API client: one request with retries, and the methods upon it.

import { textOf } from "./body.js";
import { Collection } from "./collection.js";
import {
  ApiError,
  ConnectionError,
  InvalidResponseError,
  TimeoutError,
  apiError,
} from "./errors.js";
import { Follower } from "./follow/follower.js";
import type { FollowOptions } from "./follow/message.js";
import { ListRequest, type List } from "./list.js";
import { meta, remember } from "./meta.js";
import { searchParams } from "./query.js";
import type { ListQuery } from "./collection.js";
import { MAX_RETRY_AFTER_MS, pause, retryDelay } from "./retry.js";

export type { Meta } from "./meta.js";

/** Arrays are joined with commas, `null` filters for records without a value. */
export type Query = Record<string, unknown>;

export interface ClientOptions {
  /** Address of the service, such as `https://shop.example`. */
  url: string;
  /**
   * API key or channel token. A function is called before the first request, and again with `true`
   * after the server has refused its last result.
   */
  key?: string | ((refused: boolean) => string | Promise<string>);
  /** API version of all requests and streams, a date. */
  version?: string;
  /** Milliseconds for one attempt, with its body. Default: 30,000. */
  timeout?: number;
  /** Attempts after the first one. Default: 3. */
  maxRetries?: number;
  /** Responses that are kept with their ETag. Default: 100; 0 keeps none. */
  cache?: number;
  fetch?: typeof fetch;
}

export interface RequestOptions {
  signal?: AbortSignal;
  timeout?: number;
  maxRetries?: number;
  headers?: Record<string, string>;
  version?: string;
}

export interface WriteOptions extends RequestOptions {
  /** Default for POST and PATCH: a random key, the same for all retries. */
  idempotencyKey?: string;
  /** An ETag, or a record that this client returned: write only if it is unchanged. */
  ifMatch?: string | object;
  query?: object;
}

interface SendOptions extends WriteOptions {
  body?: unknown;
}

interface Answer {
  value: unknown;
  response: Response;
}

/** A larger body is not kept, so that 100 entries stay below 25 MB. */
const MAX_CACHED_CHARS = 256 * 1024;

export class Client {
  readonly url: string;
  readonly version: string | undefined;
  readonly #options: ClientOptions;
  readonly #cache = new Map<string, { etag: string; text: string }>();
  #key: string | undefined;

  constructor(options: ClientOptions) {
    this.url = options.url.replace(/\/+$/, "");
    this.version = options.version;
    this.#options = options;
    new URL(this.url);
  }

  list<T = Record<string, unknown>>(
    path: string,
    query: object = {},
    options: RequestOptions = {},
  ): List<T> {
    return new ListRequest<T>(this, path, query as Query, options);
  }

  get<T = Record<string, unknown>>(
    path: string,
    query: object = {},
    options: RequestOptions = {},
  ): Promise<T> {
    return this.#call<T>("GET", path, { ...options, query });
  }

  /** Creates a record, or runs an action. */
  post<T = Record<string, unknown>>(
    path: string,
    body?: unknown,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.#call<T>("POST", path, { ...options, body });
  }

  put<T = Record<string, unknown>>(
    path: string,
    body: unknown,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.#call<T>("PUT", path, { ...options, body });
  }

  /** A JSON merge patch: null removes a value, fields that it omits stay. */
  patch<T = Record<string, unknown>>(
    path: string,
    body: unknown,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.#call<T>("PATCH", path, { ...options, body });
  }

  async delete(path: string, options: WriteOptions = {}): Promise<void> {
    await this.send("DELETE", path, options);
  }

  collection<
    T = Record<string, unknown>,
    Create = Partial<T>,
    Update = Partial<T>,
    Q extends object = ListQuery & Record<string, unknown>,
  >(path: string): Collection<T, Create, Update, Q> {
    return new Collection<T, Create, Update, Q>(this, path);
  }

  /** Follows the event log. */
  follow(options: FollowOptions = {}): Follower {
    return new Follower(this, options);
  }

  /** `fetch` with the credentials and the version of this client, once, without a time limit. */
  async fetch(
    url: string,
    init: RequestInit & { headers: Record<string, string> },
    token?: string,
  ): Promise<Response> {
    const credential = token ?? (await this.credential(false));
    if (credential) init.headers["Authorization"] = `Bearer ${credential}`;
    // A restive service does not redirect, and a redirect would send the key elsewhere.
    return (this.#options.fetch ?? fetch)(url, { redirect: "error", ...init });
  }

  /** The key, from the function if there is one. */
  async credential(refused: boolean): Promise<string | undefined> {
    const { key } = this.#options;
    if (typeof key !== "function") return key;
    if (this.#key === undefined || refused) {
      const next = await key(refused);
      // Another user must not see what the cache keeps for this one.
      if (next !== this.#key) this.#cache.clear();
      this.#key = next;
    }
    return this.#key;
  }

  /** Whether a refused key can be replaced. */
  get canRenew(): boolean {
    return typeof this.#options.key === "function";
  }

  /** One request, repeated while that is safe and useful. */
  async send(method: string, path: string, options: SendOptions): Promise<Answer> {
    const url = this.url + path + searchParams(options.query as Query | undefined);
    const headers = this.#headers(method, options);
    const body = options.body === undefined ? undefined : JSON.stringify(options.body);
    const retries = options.maxRetries ?? this.#options.maxRetries ?? 3;
    let refreshed = false;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#attempt(url, method, headers, body, options);
      } catch (error) {
        if (options.signal?.aborted) throw error;
        const refused = error instanceof ApiError && error.status === 401;
        if (refused && this.canRenew && !refreshed) {
          refreshed = true;
          await this.credential(true);
          continue;
        }
        const delay = retryDelay(error, attempt, method, "If-Match" in headers);
        if (delay === undefined || attempt >= retries || delay > MAX_RETRY_AFTER_MS) throw error;
        await pause(delay, options.signal);
      }
    }
  }

  async #call<T>(method: string, path: string, options: SendOptions): Promise<T> {
    return (await this.send(method, path, options)).value as T;
  }

  #headers(method: string, options: SendOptions): Record<string, string> {
    const headers: Record<string, string> = { Accept: "application/json" };
    const version = options.version ?? this.version;
    if (version) headers["Restive-Version"] = version;
    if (options.body !== undefined) {
      headers["Content-Type"] =
        method === "PATCH" ? "application/merge-patch+json" : "application/json";
    }
    if (method === "POST" || method === "PATCH") {
      headers["Idempotency-Key"] = options.idempotencyKey ?? randomKey();
    }
    if (options.ifMatch !== undefined) {
      const { ifMatch } = options;
      const etag = typeof ifMatch === "string" ? ifMatch : meta(ifMatch)?.etag;
      // Without the condition the write would be unconditional, which is not what was asked for.
      if (!etag)
        throw new TypeError("ifMatch has no ETag: pass a record that this client returned");
      headers["If-Match"] = etag;
    }
    return { ...headers, ...options.headers };
  }

  async #attempt(
    url: string,
    method: string,
    headers: Record<string, string>,
    body: string | undefined,
    options: SendOptions,
  ): Promise<Answer> {
    const limit = this.#options.cache ?? 100;
    const place = `${headers["Restive-Version"]} ${url}`;
    // Before the cache is read: a new credential empties it.
    const credential = await this.credential(false);
    const cached = method === "GET" && limit > 0 ? this.#cache.get(place) : undefined;
    const sent = { ...headers, ...(cached && { "If-None-Match": cached.etag }) };
    const { response, text } = await this.#exchange(url, method, sent, body, options, credential);
    const unchanged = response.status === 304 && cached;
    if (!response.ok && !unchanged) throw apiError(response.status, response.headers, text);
    const json = unchanged ? cached.text : text;
    const value = json === "" ? undefined : parse(json, response);
    remember(value, response);
    const etag = response.headers.get("etag");
    if (method === "GET" && limit > 0 && etag && json.length <= MAX_CACHED_CHARS) {
      // The entry that was used longest ago is first.
      this.#cache.delete(place);
      this.#cache.set(place, { etag, text: json });
      for (const oldest of this.#cache.keys()) {
        if (this.#cache.size <= limit) break;
        this.#cache.delete(oldest);
      }
    }
    return { value, response };
  }

  /** One exchange. The time limit includes the body. */
  async #exchange(
    url: string,
    method: string,
    headers: Record<string, string>,
    body: string | undefined,
    options: SendOptions,
    credential: string | undefined,
  ): Promise<{ response: Response; text: string }> {
    const timeout = options.timeout ?? this.#options.timeout ?? 30_000;
    const abort = new AbortController();
    const cancel = () => abort.abort(options.signal?.reason);
    let late = false;
    const timer = setTimeout(() => ((late = true), abort.abort()), timeout);
    options.signal?.addEventListener("abort", cancel);
    if (options.signal?.aborted) cancel();
    try {
      const init = { method, headers, signal: abort.signal, ...(body !== undefined && { body }) };
      const response = await this.fetch(url, init, credential);
      return { response, text: await textOf(response, abort.signal) };
    } catch (cause) {
      if (cause instanceof InvalidResponseError) throw cause;
      if (late)
        throw new TimeoutError(`${method} ${url}: no response within ${timeout} ms`, { cause });
      if (options.signal?.aborted) throw options.signal.reason;
      throw new ConnectionError(`${method} ${url}: ${reasonOf(cause)}`, { cause });
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", cancel);
    }
  }
}

function parse(json: string, response: Response): unknown {
  try {
    return JSON.parse(json);
  } catch (cause) {
    const type = response.headers.get("content-type") ?? "no content type";
    throw new InvalidResponseError(
      `status ${response.status} with a body that is not JSON (${type})`,
      { cause },
    );
  }
}

/** Node hides the reason of a failed fetch in its cause. */
export function reasonOf(error: unknown): string {
  const { message, cause } = error as {
    message?: string;
    cause?: { message?: string; code?: string };
  };
  const inner = cause?.message || cause?.code;
  return inner ? `${message}: ${inner}` : String(message ?? error);
}

/** `crypto.randomUUID` exists only on pages with HTTPS. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
