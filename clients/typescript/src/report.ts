// Calls functions of the caller that only hear of something.

/**
 * What fails in the call, at once or later, changes nothing here: `failed` gets it. A rejection
 * that nobody handles would end the process.
 */
export function report(
  call: () => unknown,
  failed: (error: unknown) => void = () => undefined,
): void {
  (async () => call())().catch(failed);
}
