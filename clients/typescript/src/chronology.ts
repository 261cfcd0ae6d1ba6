// The order of events that are read from a list: oldest first. Otherwise the deletion of a resource
// would be handled before its creation.

import type { NewEvent } from "./inbox.js";

export interface Listed extends NewEvent {
  /** Unix seconds. */
  created: number | undefined;
}

/** Events of a list with the newest first are turned around in memory, a longer list in parts. */
const MAX_HELD_CHARS = 32 * 1024 * 1024;
/** An event needs about as much besides its text. */
const EVENT_CHARS = 256;

/**
 * Returns the events of a list in the order in which they were created. The provider is asked for
 * the oldest first, but a list in the form of Stripe knows no order and begins with the newest. The
 * first two events of different seconds show it.
 */
export class Chronology {
  #held: Listed[] = [];
  #chars = 0;
  #first: number | undefined;
  #isReversed: boolean | undefined;

  /** Takes the next event of the list. Returns those whose turn it is. */
  push(event: Listed): Listed[] {
    const { created } = event;
    this.#first ??= created;
    if (created !== this.#first && created !== undefined) {
      this.#isReversed ??= created < (this.#first as number);
    }
    this.#held.push(event);
    this.#chars += event.body.length + EVENT_CHARS;
    const waits = this.#isReversed !== false && this.#chars <= MAX_HELD_CHARS;
    return waits ? [] : this.rest();
  }

  /** What is left at the end of the list. */
  rest(): Listed[] {
    const held = this.#held;
    [this.#held, this.#chars] = [[], 0];
    return this.#isReversed ? held.reverse() : held;
  }
}
