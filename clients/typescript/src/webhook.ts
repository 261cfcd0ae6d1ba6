// Signatures of webhooks: signs, verifies, and explains why a request does not verify. All forms
// are HMAC-SHA256; the key is the secret as text, or for Standard Webhooks its decoded bytes.
//
// | family        | header                          | signed text             |
// |---------------|---------------------------------|-------------------------|
// | `standard`    | `webhook-signature: v1,<base64>`| `<id>.<seconds>.<body>` |
// | `timestamped` | `t=<seconds>,v1=<hex>`          | `<seconds>.<body>`      |
// | `plain`       | `sha256=<hex>`                  | `<body>`                |
// | `hex`         | `<hex>`                         | `<body>`                |

import { explain } from "./diagnosis.js";
import { base64, bytesOf, equal, fromBase64, fromHex, hex, hmac } from "./mac.js";

export type Family = "standard" | "timestamped" | "plain" | "hex";

/** Seconds that a timestamp may differ from the clock, in both directions. */
export const TOLERANCE_SECONDS = 300;
/** 16 signatures need some 1,200 bytes. */
const MAX_HEADER_BYTES = 4096;
/** A rotation has two. The others are not looked at. */
const MAX_SIGNATURES = 16;

export type Reason = "missing" | "too_long" | "malformed" | "too_old" | "too_new" | "no_match";

/** What is probably wrong if no signature matches. */
export type Diagnosis = "wrong_secret" | "body_reserialised" | "secret_encoding";

/** The request is not signed with any of the secrets. Process nothing. */
export class SignatureError extends Error {
  override name = "SignatureError";
  constructor(
    readonly reason: Reason,
    message: string,
    readonly family: Family,
    /** For `too_old` and `too_new`. */
    readonly skewSeconds?: number,
    /** For `no_match`, if it was looked for. */
    readonly diagnosis?: Diagnosis,
  ) {
    super(message);
  }
}

export type HeaderSource =
  Headers | Record<string, string | string[] | undefined> | Iterable<[string, string]>;

export interface VerifyOptions {
  /** The signing secret of the endpoint; several during a rotation. */
  secrets: string | readonly string[];
  /** Default: 300. */
  toleranceSeconds?: number;
  /**
   * Families to accept, strongest first: the first whose signature header is there counts. Default:
   * standard and timestamped. The others have no timestamp: a recorded request verifies for ever.
   */
  families?: readonly Family[];
  /** Names of the headers of families other than standard. */
  headers?: { timestamped?: string; plain?: string; hex?: string };
  /**
   * Asked if no signature matches: whether to find out why, which costs as much as to verify up to
   * sixty such bodies, and anybody can cause it. Default: always; a `Receiver` once a second.
   */
  diagnose?: () => boolean;
  /** Unix seconds, for tests. */
  now?: number;
}

export interface Verified {
  family: Family;
  /** Unix seconds of the signature, if the family has them. */
  timestamp?: number;
  /** The signed id of Standard Webhooks. */
  id?: string;
}

/** A secret, ready for each family. */
export interface Key {
  text: Uint8Array;
  /** Undefined if the secret is not base64: then Standard Webhooks cannot use it. */
  bytes: Uint8Array | undefined;
}

/** Verifies the body as it was received: parse it afterwards. Throws `SignatureError`. */
export async function verify(
  headers: HeaderSource,
  body: string | Uint8Array,
  options: VerifyOptions,
): Promise<Verified> {
  const keys = parseSecrets(options.secrets);
  const families = options.families ?? ["standard", "timestamped"];
  const find = headerLookup(headers, families, options);
  const bytes = typeof body === "string" ? bytesOf(body) : body;
  const isThere = (name: string) => find(name) !== undefined;
  // Not the next one after a failure: who can add a header must not choose the family.
  const present = families.find((one) => signatureNames(one, options).some(isThere));
  const family = present ?? families.at(-1);
  if (!family) throw new TypeError("no family of signatures is accepted");
  return verifyFamily(family, find, bytes, keys, options);
}

async function verifyFamily(
  family: Family,
  headers: Lookup,
  body: Uint8Array,
  keys: Key[],
  options: VerifyOptions,
): Promise<Verified> {
  const signed = READERS[family](headers, options);
  const { seconds } = signed;
  if (seconds !== undefined) checkTime(seconds, family, options);
  const text = [...signed.prefix, body];
  let found = 0;
  for (const key of keys) {
    const secret = family === "standard" ? key.bytes : key.text;
    if (!secret) continue;
    const expected = await hmac(secret, text);
    // All pairs are compared, so that the time does not show which one matches.
    for (const tag of signed.tags) found |= equal(expected, tag);
  }
  if (!found) {
    if (options.diagnose && !options.diagnose()) {
      const message = "no signature fits the body and the secret";
      throw new SignatureError("no_match", message, family);
    }
    const { diagnosis, message } = await explain(family, signed, body, keys);
    throw new SignatureError("no_match", message, family, undefined, diagnosis);
  }
  const timestamp = seconds === undefined ? {} : { timestamp: Number(seconds) };
  return { family, ...timestamp, ...(signed.id !== undefined && { id: signed.id }) };
}

/** A request taken apart: the text before the body that is signed, and the signatures. */
export interface Signed {
  prefix: Uint8Array[];
  tags: Uint8Array[];
  seconds?: string;
  id?: string;
}

type Lookup = (name: string) => string | undefined;

/** Where the signature of a family is, unless the caller names the header. The first counts. */
const SIGNATURES: Record<Family, readonly string[]> = {
  standard: ["webhook-signature", "svix-signature"],
  timestamped: ["restive-signature", "stripe-signature"],
  plain: ["x-hub-signature-256"],
  hex: ["x-signature"],
};

function signatureNames(family: Family, { headers }: VerifyOptions): readonly string[] {
  const own = family === "standard" ? undefined : headers?.[family];
  return own ? [own.toLowerCase()] : SIGNATURES[family];
}

/** The headers that a family reads. */
function namesOf(family: Family, options: VerifyOptions): readonly string[] {
  if (family !== "standard") return signatureNames(family, options);
  return ["webhook", "svix"].flatMap((who) =>
    ["id", "timestamp", "signature"].map((part) => `${who}-${part}`),
  );
}

function signatureOf(headers: Lookup, family: Family, options: VerifyOptions): string {
  const values = signatureNames(family, options).map(headers);
  return bounded(values.find((value) => value !== undefined), "signature", family);
}

const READERS: Record<Family, (headers: Lookup, options: VerifyOptions) => Signed> = {
  standard(headers) {
    const [name, other] = SIGNATURES.standard.map(headers);
    const who = name === undefined && other !== undefined ? "svix" : "webhook";
    const read = (part: string) => bounded(headers(`${who}-${part}`), part, "standard");
    const [id, seconds, signature] = [read("id"), read("timestamp"), read("signature")];
    if (id === "" || id.includes(".")) malformed("standard", "the id must have letters and no dot");
    const tags: Uint8Array[] = [];
    for (const item of signature.split(" ")) {
      const [version, value] = cut(item, ",", "standard", "an item without a comma");
      if (version !== "v1" || tags.length >= MAX_SIGNATURES) continue;
      const tag = fromBase64(value);
      if (tag?.length !== 32) malformed("standard", "a v1 that is not 32 bytes in base64", true);
      else tags.push(tag);
    }
    if (tags.length === 0) malformed("standard", "no v1", true);
    return { prefix: [bytesOf(`${id}.${seconds}.`)], tags, seconds, id };
  },

  timestamped(headers, options) {
    let seconds: string | undefined;
    const tags: Uint8Array[] = [];
    for (const item of signatureOf(headers, "timestamped", options).split(",")) {
      const [scheme, value] = cut(item, "=", "timestamped", "an item without =");
      // With a space: platforms join two headers with a comma and a space.
      if (scheme.trim() === "t" && seconds !== undefined) {
        malformed("timestamped", "two times", true);
      }
      if (scheme === "t") {
        seconds = value;
      } else if (scheme === "v1" && tags.length < MAX_SIGNATURES) {
        const tag = fromHex(value);
        if (tag) tags.push(tag);
        else malformed("timestamped", "a v1 that is not 64 hex digits", true);
      }
    }
    if (seconds === undefined) return malformed("timestamped", "no t=", true);
    if (tags.length === 0) malformed("timestamped", "no v1=", true);
    return { prefix: [bytesOf(`${seconds}.`)], tags, seconds };
  },

  plain(headers, options) {
    const text = signatureOf(headers, "plain", options);
    const tag = text.startsWith("sha256=") ? fromHex(text.slice(7)) : undefined;
    if (!tag) return malformed("plain", "the signature is not sha256= and 64 hex digits");
    return { prefix: [], tags: [tag] };
  },

  hex(headers, options) {
    const tag = fromHex(signatureOf(headers, "hex", options));
    if (!tag) return malformed("hex", "the signature is not 64 hex digits");
    return { prefix: [], tags: [tag] };
  },
};

function bounded(value: string | undefined, part: string, family: Family): string {
  if (value === undefined) {
    throw new SignatureError("missing", `the ${part} header is missing`, family);
  }
  if (bytesOf(value).length > MAX_HEADER_BYTES) {
    const message = `the ${part} header is longer than ${MAX_HEADER_BYTES} bytes`;
    throw new SignatureError("too_long", message, family);
  }
  return value;
}

function malformed(family: Family, what: string, inSignature = false): never {
  const message = inSignature ? `the signature header has ${what}` : what;
  throw new SignatureError("malformed", message, family);
}

function cut(item: string, mark: string, family: Family, what: string): [string, string] {
  const at = item.indexOf(mark);
  if (at < 0) malformed(family, what, true);
  return [item.slice(0, at), item.slice(at + 1)];
}

/** Digits alone: the signed text has the characters of the header. */
function checkTime(seconds: string, family: Family, options: VerifyOptions): void {
  const signedAt = Number(seconds);
  // As many as a 64-bit number has.
  if (!/^\d{1,19}$/.test(seconds) || BigInt(seconds) > 9223372036854775807n) {
    malformed(family, "the timestamp is not a number of seconds");
  }
  const now = options.now ?? Math.floor(Date.now() / 1000);
  const skew = Math.abs(now - signedAt);
  if (skew <= (options.toleranceSeconds ?? TOLERANCE_SECONDS)) return;
  const old = signedAt < now;
  const message = old
    ? `the timestamp is too old, by the clock here ${skew} s ago: an old request sent again, ` +
      "or a wrong clock"
    : `the timestamp is too new, by the clock here ${skew} s ahead: one of the clocks is wrong`;
  throw new SignatureError(old ? "too_old" : "too_new", message, family, skew);
}

/** Header names are not case-sensitive. None of those that are read may come twice. */
function headerLookup(
  source: HeaderSource,
  families: readonly Family[],
  options: VerifyOptions,
): Lookup {
  const found = new Map<string, string>();
  const entries: Iterable<[string, string | string[] | undefined]> =
    Symbol.iterator in source ? (source as Iterable<[string, string]>) : Object.entries(source);
  for (const [name, value] of entries) {
    const key = name.toLowerCase();
    for (const text of value === undefined ? [] : [value].flat()) {
      const family = families.find((one) => namesOf(one, options).includes(key));
      if (family && found.has(key)) malformed(family, `the header ${key} comes twice`);
      found.set(key, text);
    }
  }
  return (name) => found.get(name.toLowerCase());
}

/** The specification asks for 24 to 64 bytes, but the provider decides: examples have 18. */
const MIN_SECRET_BYTES = 16;
const MAX_SECRET_BYTES = 64;

/** Throws if a secret cannot be one; the message does not contain it. */
export function parseSecrets(secrets: string | readonly string[]): Key[] {
  const all = typeof secrets === "string" ? [secrets] : secrets;
  if (all.length === 0) throw new TypeError("no secret: nothing could be verified");
  return all.map((secret) => {
    if (typeof secret !== "string" || secret === "") throw new TypeError("a secret is empty");
    const text = bytesOf(secret);
    if (secret !== secret.trim()) throw new TypeError("a secret has space around it: remove it");
    if (!secret.startsWith("whsec_")) return { text, bytes: undefined };
    const bytes = fromBase64(secret.slice(6));
    if (!bytes) throw new TypeError("a secret is not standard base64 after whsec_");
    if (bytes.length < MIN_SECRET_BYTES || bytes.length > MAX_SECRET_BYTES) {
      const range = `${MIN_SECRET_BYTES} to ${MAX_SECRET_BYTES}`;
      throw new TypeError(`a secret has ${bytes.length} bytes, ${range} are allowed`);
    }
    return { text, bytes };
  });
}

/** The headers of a signed request, for tests and for senders. The newest secret is first. */
export async function sign(
  body: string | Uint8Array,
  {
    secrets,
    id,
    timestamp,
  }: {
    secrets: string | readonly string[];
    id: string;
    timestamp?: number;
  },
): Promise<Record<string, string>> {
  if (id === "" || id.includes(".")) throw new TypeError("the id must have letters and no dot");
  const seconds = timestamp ?? Math.floor(Date.now() / 1000);
  const bytes = typeof body === "string" ? bytesOf(body) : body;
  const keys = parseSecrets(secrets);
  let timestamped = `t=${seconds}`;
  const standard: string[] = [];
  for (const { text, bytes: key } of keys) {
    timestamped += `,v1=${hex(await hmac(text, [bytesOf(`${seconds}.`), bytes]))}`;
    if (key) standard.push(`v1,${base64(await hmac(key, [bytesOf(`${id}.${seconds}.`), bytes]))}`);
  }
  return {
    "Restive-Signature": timestamped,
    "X-Hub-Signature-256": `sha256=${hex(await hmac((keys[0] as Key).text, [bytes]))}`,
    "webhook-id": id,
    "webhook-timestamp": String(seconds),
    ...(standard.length > 0 && { "webhook-signature": standard.join(" ") }),
  };
}
