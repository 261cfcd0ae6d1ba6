// Reads the body of a response, with a limit: a proxy or another server may send anything.

import { InvalidResponseError } from "./errors.js";

/** A page of a list has at most 4 MiB, and what is embedded in it 8 MiB. */
export const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;

/** Of an error that is too large, only the status counts: its text is empty. */
export async function textOf(response: Response, signal: AbortSignal): Promise<string> {
  // Some platforms have no streams.
  if (!response.body) return response.text();
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const chunk of chunksOf(response.body, signal)) {
    size += chunk.length;
    if (size > MAX_RESPONSE_BYTES) {
      if (!response.ok) return "";
      throw new InvalidResponseError(`the response is larger than ${MAX_RESPONSE_BYTES} bytes`);
    }
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
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
