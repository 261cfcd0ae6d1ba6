// Finds out why no signature matches: tries the usual mistakes of receivers. Only a request that
// the sender has signed matches one of them, so the result tells an attacker nothing.

import { bytesOf, equal, fromBase64, hmac } from "./mac.js";
import type { Diagnosis, Family, Key, Signed } from "./webhook.js";

/** The variants are computed for bodies up to this size: a refusal must stay cheap. */
const MAX_BYTES = 256 * 1024;
/**
 * A variant has at most this many times the characters of the body, and some more for small bodies.
 * Indents make ordinary bodies two or three times longer, but one that is nested deeply a thousand
 * times, because each of its lines begins with them.
 */
const MAX_GROWTH = 8;
const EXTRA_CHARS = 16 * 1024;

export async function explain(
  family: Family,
  signed: Signed,
  body: Uint8Array,
  keys: readonly Key[],
): Promise<{ diagnosis: Diagnosis; message: string }> {
  const matches = async (secret: Uint8Array | undefined, text: Uint8Array) => {
    if (!secret || secret.length === 0) return false;
    const expected = await hmac(secret, [...signed.prefix, text]);
    return signed.tags.some((tag) => equal(expected, tag));
  };
  const secretOf = (key: Key) => (family === "standard" ? key.bytes : key.text);
  for (const [what, variant] of bodyVariants(body)) {
    const bytes = bytesOf(variant);
    for (const key of keys) {
      if (await matches(secretOf(key), bytes)) {
        const message =
          `the signature fits the body ${what}: the body was changed after it was ` +
          "received. Verify the raw bytes, before anything parses them";
        return { diagnosis: "body_reserialised", message };
      }
    }
  }
  for (const key of keys) {
    for (const [what, variant] of secretVariants(family, key)) {
      if (await matches(variant, body)) {
        const message = `the signature fits the secret ${what}: correct the setting`;
        return { diagnosis: "secret_encoding", message };
      }
    }
  }
  const message =
    "no signature fits the body and the secret: probably the secret of another " +
    "endpoint or mode, or an old one";
  return { diagnosis: "wrong_secret", message };
}

/** One at a time: most are not needed. */
function* bodyVariants(body: Uint8Array): Generator<[string, string]> {
  if (body.length > MAX_BYTES) return;
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return;
  }
  for (const [what, variant] of textVariants(text)) {
    if (variant !== undefined && variant !== text) yield [what, variant];
  }
}

function* textVariants(text: string): Generator<[string, string | undefined]> {
  yield ["without the space around it", text.trim()];
  yield ["with a line end after it", `${text}\n`];
  yield ["without the byte order mark", text.replace(/^\uFEFF/, "")];
  let value: unknown;
  let compact: string;
  try {
    value = JSON.parse(text);
    compact = JSON.stringify(value);
  } catch {
    // Not JSON, or nested too deeply: there is nothing to write in another way.
    return;
  }
  const limit = MAX_GROWTH * text.length + EXTRA_CHARS;
  const indented = (spaces: number) =>
    indentedLength(compact, spaces) <= limit ? JSON.stringify(value, null, spaces) : undefined;
  yield ["without spaces between its tokens", compact];
  yield ["indented by two", indented(2)];
  yield ["indented by four", indented(4)];
  yield ["with a space after each comma and colon", spaced(compact)];
  yield ["with non-ASCII characters escaped", escaped(compact)];
  yield ["with spaces and escapes, as Python writes it", escaped(spaced(compact))];
}

/** How long a compact JSON text is at most, when it is indented. */
function indentedLength(json: string, spaces: number): number {
  let [length, depth] = [json.length, 0];
  for (const at of signs(json)) {
    const sign = json[at] as string;
    if (sign === ":") {
      length += 1;
      continue;
    }
    if (sign !== ",") depth += sign === "[" || sign === "{" ? 1 : -1;
    length += 1 + spaces * depth;
  }
  return length;
}

/** As Python writes JSON. */
function spaced(json: string): string {
  const parts: string[] = [];
  let begin = 0;
  for (const at of signs(json)) {
    if (json[at] !== "," && json[at] !== ":") continue;
    parts.push(json.slice(begin, at + 1));
    begin = at + 1;
  }
  parts.push(json.slice(begin));
  return parts.join(" ");
}

/** Where a JSON text has the signs that are in no string. */
function* signs(json: string): Generator<number> {
  for (let at = 0; at < json.length; at += 1) {
    const sign = json[at] as string;
    if (sign === '"') while (json[++at] !== '"') at += json[at] === "\\" ? 1 : 0;
    else if (",:[]{}".includes(sign)) yield at;
  }
}

function escaped(text: string): string {
  return text.replace(
    /[\u0080-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function secretVariants(family: Family, key: Key): [string, Uint8Array | undefined][] {
  const text = new TextDecoder().decode(key.text);
  const bare = text.replace(/^whsec_/, "");
  const standard = bare.trim().replaceAll("-", "+").replaceAll("_", "/");
  const variants: [string, Uint8Array | undefined][] = [
    ["without the space around it", bytesOf(text.trim())],
    ["without whsec_", bytesOf(bare)],
    ["with whsec_ before it", bytesOf(`whsec_${bare.trim()}`)],
    ["decoded from base64", fromBase64(standard)],
  ];
  if (family === "standard") variants.push(["as text", key.text]);
  else variants.push(["decoded from base64", key.bytes]);
  return variants;
}
