// Finds out why no signature matches: tries the usual mistakes of receivers. Only a request that
// the sender has signed matches one of them, so the result tells an attacker nothing.

import { bytesOf, equal, fromBase64, hmac } from "./mac.js";
import type { Diagnosis, Family, Key, Signed } from "./webhook.js";

/** The variants are computed for bodies up to this size: a refusal must stay cheap. */
const MAX_BYTES = 256 * 1024;

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
  for (const key of keys) {
    for (const [what, variant] of bodyVariants(body)) {
      if (await matches(secretOf(key), variant)) {
        const message =
          `the signature fits the body ${what}: the body was changed after it was ` +
          "received. Verify the raw bytes, before anything parses them";
        return { diagnosis: "body_reserialised", message };
      }
    }
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

function bodyVariants(body: Uint8Array): [string, Uint8Array][] {
  if (body.length > MAX_BYTES) return [];
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return [];
  }
  const variants: [string, string][] = [
    ["without the space around it", text.trim()],
    ["with a line end after it", `${text}\n`],
    ["without the byte order mark", text.replace(/^\uFEFF/, "")],
  ];
  try {
    const value: unknown = JSON.parse(text);
    variants.push(["without spaces between its tokens", JSON.stringify(value)]);
    variants.push(["indented by two", JSON.stringify(value, null, 2)]);
    variants.push(["indented by four", JSON.stringify(value, null, 4)]);
    variants.push(["with a space after each comma and colon", spaced(value)]);
    variants.push(["with non-ASCII characters escaped", escaped(JSON.stringify(value))]);
    variants.push(["with spaces and escapes, as Python writes it", escaped(spaced(value))]);
  } catch {
    // Not JSON: there is nothing to write in another way.
  }
  const changed = variants.filter(([, variant]) => variant !== text);
  return changed.map(([what, variant]) => [what, bytesOf(variant)]);
}

/** As Python writes JSON. */
function spaced(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([name, one]) => `${JSON.stringify(name)}: ${spaced(one)}`,
  );
  return `{${members.join(", ")}}`;
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
