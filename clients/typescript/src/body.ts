// Reads bodies, with a limit: a proxy, another server or a stranger may send anything.

import { InvalidResponseError } from "./errors.js";

/** A page of a list has at most 4 MiB, and what is embedded in it 8 MiB. */
export const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;

/**
 * The bytes of a body. The parts are copied, because small ones need many times their size: each is
 * an object, and keeps what was received with it in memory.
 */
export class Bytes {
  #bytes = new Uint8Array(1024);
  #size = 0;

  constructor(readonly limit: number) {}

  /** False if there are more than the limit. */
  push(part: Uint8Array): boolean {
    const size = this.#size + part.length;
    if (size > this.limit) return false;
    if (size > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(size, 2 * this.#bytes.length));
      grown.set(this.all());
      this.#bytes = grown;
    }
    this.#bytes.set(part, this.#size);
    this.#size = size;
    return true;
  }

  all(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }
}

/** Of an error that is too large, only the status counts: its text is empty. */
export async function textOf(response: Response, signal: AbortSignal): Promise<string> {
  // Some platforms have no streams.
  if (!response.body) return response.text();
  const bytes = new Bytes(MAX_RESPONSE_BYTES);
  for await (const chunk of chunksOf(response.body, signal)) {
    if (bytes.push(chunk)) continue;
    if (!response.ok) return "";
    throw new InvalidResponseError(`the response is larger than ${MAX_RESPONSE_BYTES} bytes`);
  }
  return new TextDecoder().decode(bytes.all());
}

/**
 * The chunks of a body, until the signal is aborted. `fetch` should end the body then, but Node's
 * may not after a garbage collection: the read would never return.
 */
export async function* chunksOf(
  body: ReadableStream<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => undefined);
  signal.addEventListener("abort", cancel);
  try {
    for (;;) {
      throwIfAborted(signal);
      const { done, value } = await reader.read();
      throwIfAborted(signal);
      if (done) return;
      yield value;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    cancel();
  }
}

/** Older browsers and React Native have neither the method of this name nor a reason. */
function throwIfAborted(signal: AbortSignal): void {
  if (signal.aborted) throw signal.reason ?? new Error("The request was aborted.");
}
