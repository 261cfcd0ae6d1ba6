// Reads the body of a response, with a limit: a proxy or another server may send anything.

import { InvalidResponseError } from "./errors.js";

/** A page of a list has at most 4 MiB, and what is embedded in it 8 MiB. */
export const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;

/** Of an error that is too large, only the status counts: its text is empty. */
export async function textOf(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  // Some platforms have no streams.
  if (!reader) return response.text();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > MAX_RESPONSE_BYTES) {
      await reader.cancel();
      if (!response.ok) return "";
      throw new InvalidResponseError(`the response is larger than ${MAX_RESPONSE_BYTES} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}
