// HMAC-SHA256 by the platform, encodings, and a comparison that takes the same time for all values.

const encoder = new TextEncoder();

export function bytesOf(text: string): Uint8Array {
  return encoder.encode(text);
}

/** The tag of all parts, one after the other. */
export async function hmac(key: Uint8Array, parts: readonly Uint8Array[]): Promise<Uint8Array> {
  const text = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    text.set(part, at);
    at += part.length;
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const raw = key as Uint8Array<ArrayBuffer>;
  const imported = await crypto.subtle.importKey("raw", raw, algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, text));
}

export async function sha256(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return hex(new Uint8Array(digest));
}

/** 1 if they are equal, otherwise 0. Looks at every byte. */
export function equal(a: Uint8Array, b: Uint8Array): number {
  let difference = a.length ^ b.length;
  for (let at = 0; at < a.length; at += 1) difference |= (a[at] ?? 0) ^ (b[at] ?? 0);
  return difference === 0 ? 1 : 0;
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** 32 bytes from 64 hex digits, in both cases. */
export function fromHex(text: string): Uint8Array | undefined {
  if (!/^[0-9a-fA-F]{64}$/.test(text)) return undefined;
  return Uint8Array.from({ length: 32 }, (_, at) => parseInt(text.slice(at * 2, at * 2 + 2), 16));
}

export function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** The standard alphabet, with or without padding. */
export function fromBase64(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  const bare = text.replace(/=+$/, "");
  const padding = (4 - (bare.length % 4)) % 4;
  if (padding === 3 || (text.length !== bare.length && text.length - bare.length !== padding)) {
    return undefined;
  }
  const bytes = Uint8Array.from(atob(bare), (letter) => letter.charCodeAt(0));
  // Bits after the last byte must be zero: otherwise several texts would mean the same bytes.
  return base64(bytes).replace(/=+$/, "") === bare ? bytes : undefined;
}
