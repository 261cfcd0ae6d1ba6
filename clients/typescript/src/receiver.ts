// The receiver of webhooks: verifies, parses, and puts each event into a durable queue before it
// answers. The work is done afterwards, by a `Worker`. Runs on every platform with `fetch`; the
// durable stores and the handler for Express are in `restive-client/node`.

import { Bytes } from "./body.js";
import type { Event } from "./event.js";
import { MAX_ID_BYTES, isUsableId, type InboxStore, type NewEvent } from "./inbox.js";
import { bytesOf, sha256 } from "./mac.js";
import { report } from "./report.js";
import {
  SignatureError,
  parseSecrets,
  verify,
  type HeaderSource,
  type Verified,
  type VerifyOptions,
} from "./webhook.js";

export * from "./inbox.js";
export * from "./reconcile.js";
export { Worker } from "./worker.js";
export type { Handler, HandlerContext, WorkerOptions } from "./worker.js";

/** A request to a restive service is at most 1 MiB by default; an event has the record before and after it. */
export const MAX_BODY_BYTES = 8 * 1024 * 1024;
/** Providers wait 5 to 30 s. An answer that comes later counts as failed. */
const STORE_MS = 4500;
/** Requests that wait for the store. They keep their bodies; with more, the disk is too slow. */
export const MAX_WAITING = 1024;
/** How often it is found out why a signature does not match: that is expensive. */
const DIAGNOSE_EVERY_MS = 1000;
/** For the provider, if the event could not be stored. */
const RETRY_AFTER_SECONDS = 5;

export interface ReceiverOptions extends VerifyOptions {
  store: InboxStore;
  /** Default: 8 MiB. */
  maxBodyBytes?: number;
  /**
   * The id by which deliveries are deduplicated. Default: the id that Standard Webhooks sign, the
   * `id` of the body, or for signatures without a time the SHA-256 of the body.
   */
  eventId?: (event: Record<string, unknown>, verified: Verified) => string | undefined;
  /** Refuse requests that did not arrive over HTTPS. */
  httpsOnly?: boolean;
  /** Whether an address may send webhooks; see `networks` in `restive-client/node`. Default: all. */
  allow?: (address: string) => boolean;
  /**
   * Called for each request that was not accepted, and for a known id with another body. If it
   * fails, that is ignored.
   */
  onProblem?: (problem: Problem) => void | Promise<void>;
}

/** How a request arrived, which only the server knows. */
export interface Source {
  /** Over HTTPS. */
  secure?: boolean | undefined;
  /** Of the client. */
  address?: string | undefined;
}

export interface Problem {
  status: number;
  code: string;
  message: string;
  /** Why a signature was refused. */
  error?: SignatureError;
  eventId?: string;
}

/** What to answer: a status and a JSON body. */
export interface Answer {
  status: number;
  body: string;
  headers: Record<string, string>;
}

export class Receiver {
  readonly #options: ReceiverOptions;
  readonly maxBodyBytes: number;
  /** Calls of the store in progress, also those that nobody waits for any more. */
  #waiting = 0;
  #diagnosedAt = -Infinity;

  constructor(options: ReceiverOptions) {
    // A wrong setting must stop the program, not each request.
    parseSecrets(options.secrets);
    this.#options = { diagnose: () => this.#mayDiagnose(), ...options };
    this.maxBodyBytes = options.maxBodyBytes ?? MAX_BODY_BYTES;
  }

  /** What can be decided before the body is read: a refusal, or undefined. */
  check(method: string, source: Source = {}): Answer | undefined {
    const { httpsOnly, allow } = this.#options;
    if (httpsOnly && !source.secure) {
      const message = "webhooks are accepted over HTTPS only";
      return this.#refuse({ status: 403, code: "https_required", message });
    }
    if (allow && !(source.address !== undefined && isAllowed(allow, source.address))) {
      const message = "this address is not allowed to send webhooks";
      return this.#refuse({ status: 403, code: "address_not_allowed", message });
    }
    if (method === "POST") return undefined;
    const answer = this.#refuse({
      status: 405,
      code: "method_not_allowed",
      message: "send a POST",
    });
    return { ...answer, headers: { ...answer.headers, Allow: "POST" } };
  }

  /** Handles one request, whose body is exactly as it was received. Never throws. */
  async accept(
    method: string,
    headers: HeaderSource,
    body: Uint8Array,
    source: Source = {},
  ): Promise<Answer> {
    const refused = this.check(method, source);
    if (refused) return refused;
    if (body.length > this.maxBodyBytes) return this.tooLarge();
    let verified: Verified;
    try {
      verified = await verify(headers, body, this.#options);
    } catch (error) {
      if (!(error instanceof SignatureError)) return this.#failed(error);
      const code = `signature_${error.reason}`;
      return this.#refuse({ status: 401, code, message: error.message, error });
    }
    const event = parseEvent(body);
    if (typeof event === "string") {
      return this.#refuse({ status: 400, code: "invalid_body", message: event });
    }
    let id: unknown;
    try {
      const { eventId } = this.#options;
      id = eventId ? eventId(event, verified) : await defaultId(event, verified, body);
    } catch (error) {
      return this.#failed(error);
    }
    if (!isUsableId(id)) {
      const message = `the event has no usable id: a text of 1 to ${MAX_ID_BYTES} bytes`;
      return this.#refuse({ status: 400, code: "invalid_id", message });
    }
    const isOfBody = id === event["id"] && (this.#options.eventId || verified.id === undefined);
    if (isOfBody && countMembers(new TextDecoder().decode(body), "id") > 1) {
      // Readers of JSON differ in which of two members counts.
      const message = "the body has two members `id`";
      return this.#refuse({ status: 400, code: "invalid_body", message });
    }
    let fingerprint: string;
    try {
      fingerprint = await fingerprintOf(event);
    } catch {
      const message = "the body is nested too deeply";
      return this.#refuse({ status: 400, code: "invalid_body", message });
    }
    try {
      const type = typeof event["type"] === "string" ? event["type"] : "";
      return await this.#store({
        id,
        type,
        body: new TextDecoder().decode(body),
        fingerprint,
        source: "webhook",
      });
    } catch (error) {
      return this.#failed(error, id);
    }
  }

  /** For handlers that stop reading at the limit. */
  tooLarge(): Answer {
    const message = `the body is larger than ${this.maxBodyBytes} bytes`;
    return this.#refuse({ status: 413, code: "body_too_large", message });
  }

  /** The body ended before its declared length. */
  incomplete(): Answer {
    const message = "the body ended too early";
    return this.#refuse({ status: 400, code: "body_incomplete", message });
  }

  /** A parser has consumed the bytes, so the signature cannot be verified. */
  bodyParsed(): Answer {
    const message =
      "the body was parsed before the receiver saw it: mount the receiver before " +
      "express.json()";
    return this.#refuse({ status: 500, code: "body_parsed", message });
  }

  async #store(event: NewEvent): Promise<Answer> {
    const { id } = event;
    const result = await within(STORE_MS, this.#put(event));
    if (result === "different") {
      const message = `event ${id} is known with another content; this one is not processed`;
      this.#report({ status: 200, code: "different_body", message, eventId: id });
    }
    const duplicate = result !== "stored";
    return answer(200, { received: true, ...(duplicate && { duplicate }) });
  }

  async #put(event: NewEvent): ReturnType<InboxStore["put"]> {
    if (this.#waiting >= MAX_WAITING) {
      throw new Error(`${this.#waiting} requests wait for the store, which is too slow or hangs`);
    }
    this.#waiting += 1;
    try {
      return await this.#options.store.put(event);
    } finally {
      this.#waiting -= 1;
    }
  }

  #mayDiagnose(): boolean {
    const now = performance.now();
    if (now - this.#diagnosedAt < DIAGNOSE_EVERY_MS) return false;
    this.#diagnosedAt = now;
    return true;
  }

  #report(problem: Problem): void {
    report(() => this.#options.onProblem?.(problem));
  }

  #refuse(problem: Problem): Answer {
    this.#report(problem);
    const { status, code, message } = problem;
    return answer(status, { error: { code, message } });
  }

  /** Nothing was stored for certain, so the provider must send it again. */
  #failed(error: unknown, eventId?: string): Answer {
    const message = `the event could not be stored: ${(error as Error)?.message ?? error}`;
    this.#report({
      status: 503,
      code: "store_failed",
      message,
      ...(eventId !== undefined && { eventId }),
    });
    // The reason may contain paths of this machine; the operator has it from `onProblem`.
    const body = { error: { code: "store_failed", message: "the event was not stored" } };
    const { headers, ...refusal } = answer(503, body);
    return { ...refusal, headers: { ...headers, "Retry-After": String(RETRY_AFTER_SECONDS) } };
  }
}

/**
 * A handler for platforms whose servers use `Request` and `Response`. The address of the client is
 * known to the platform only: `sourceOf` returns it, from a header that a trusted proxy sets.
 */
export function fetchHandler(
  receiver: Receiver,
  sourceOf: (request: Request) => Source = ({ url }) => ({ secure: url.startsWith("https:") }),
): (request: Request) => Promise<Response> {
  return async (request) => {
    const source = arrival(sourceOf, request);
    const refused = receiver.check(request.method, source);
    const result = refused ?? (await receive(receiver, request, source));
    return new Response(result.body, { status: result.status, headers: result.headers });
  };
}

/** How a request arrived. If that fails, it is not known, and what requires something refuses. */
export function arrival<R>(sourceOf: (request: R) => Source, request: R): Source {
  try {
    return sourceOf(request);
  } catch {
    return {};
  }
}

async function receive(receiver: Receiver, request: Request, source: Source): Promise<Answer> {
  const body = await readBody(request, receiver.maxBodyBytes);
  if (body === "too_large") return receiver.tooLarge();
  if (body === "incomplete") return receiver.incomplete();
  return receiver.accept(request.method, request.headers, body, source);
}

/** Reads at most the limit, so that a large body costs no memory. */
async function readBody(
  request: Request,
  limit: number,
): Promise<Uint8Array | "too_large" | "incomplete"> {
  if (Number(request.headers.get("content-length") ?? 0) > limit) return "too_large";
  const bytes = new Bytes(limit);
  try {
    const reader = request.body?.getReader();
    for (;;) {
      const step = await reader?.read();
      if (!step || step.done) break;
      if (bytes.push(step.value)) continue;
      await reader?.cancel();
      return "too_large";
    }
  } catch {
    return "incomplete";
  }
  return bytes.all();
}

/** The event, or why the body is none. */
function parseEvent(body: Uint8Array): Record<string, unknown> | string {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return "the body is not UTF-8";
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "the body is not JSON";
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return "the body is not a JSON object";
  }
  return value as Record<string, unknown>;
}

/** How often the object of a valid JSON text has this member. `JSON.parse` returns the last one. */
function countMembers(json: string, name: string): number {
  const special = /["[\]{}]/g;
  const colon = /\s*:/y;
  let count = 0;
  let depth = 0;
  for (let found; (found = special.exec(json)); ) {
    const [sign] = found;
    if (sign === "{" || sign === "[") depth += 1;
    else if (sign !== '"') depth -= 1;
    else {
      // Not by an expression: the platforms limit how long its texts may be.
      let end = found.index + 1;
      while (json[end] !== '"') end += json[end] === "\\" ? 2 : 1;
      special.lastIndex = colon.lastIndex = end + 1;
      const isMember = depth === 1 && colon.test(json);
      if (isMember && JSON.parse(json.slice(found.index, end + 1)) === name) count += 1;
    }
  }
  return count;
}

/**
 * The signed id counts first: the body of a third party may be a record, with the id of that
 * record. For restive both are the id of the event. A request without a time verifies for ever, so
 * an id in a header that is not signed would let anybody send it again.
 */
async function defaultId(
  event: Record<string, unknown>,
  verified: Verified,
  body: Uint8Array,
): Promise<unknown> {
  if (verified.id !== undefined) return verified.id;
  const id = event["id"];
  const hasTime = verified.timestamp !== undefined;
  return hasTime || (typeof id === "string" && id !== "") ? id : `sha256:${await sha256(body)}`;
}

/** A check that fails allows nobody. */
function isAllowed(allow: (address: string) => boolean, address: string): boolean {
  try {
    // An IPv4 address of a socket for both versions.
    return allow(address.replace(/^::ffff:(?=\d+\.)/i, "")) === true;
  } catch {
    return false;
  }
}

/**
 * The same for each delivery of an event: `pending_webhooks` counts deliveries, so it may change
 * between two of them.
 */
export async function fingerprintOf(event: object): Promise<string> {
  return sha256(bytesOf(canonical({ ...event, pending_webhooks: undefined })));
}

/** The parts are joined at once: the text of each level of nesting would be copied by the next. */
function canonical(value: unknown): string {
  const parts: string[] = [];
  const write = (value: unknown): void => {
    if (typeof value !== "object" || value === null) {
      parts.push(JSON.stringify(value) ?? "null");
    } else if (Array.isArray(value)) {
      value.forEach((one, at) => {
        parts.push(at === 0 ? "[" : ",");
        write(one);
      });
      parts.push(value.length === 0 ? "[]" : "]");
    } else {
      const members = Object.entries(value).filter(([, one]) => one !== undefined);
      members.sort(([a], [b]) => (a < b ? -1 : 1));
      members.forEach(([name, one], at) => {
        parts.push(at === 0 ? "{" : ",", JSON.stringify(name), ":");
        write(one);
      });
      parts.push(members.length === 0 ? "{}" : "}");
    }
  };
  write(value);
  return parts.join("");
}

function answer(status: number, body: object): Answer {
  return { status, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

/** What comes later is ignored, also an error. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the store did not answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export type { Event };
