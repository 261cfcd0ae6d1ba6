// Parses the format of server-sent events. Only complete blocks count: what is left when a
// connection breaks was not received.

export interface Block {
  event?: string;
  id?: string;
  data?: string;
  retry?: number;
}

/** No event of a restive service is longer, so a longer block comes from something else. */
const MAX_BLOCK_CHARS = 16 * 1024 * 1024;

export class SseParser {
  #rest = "";
  /** `#rest` ends with a carriage return. It is not asked itself: that would copy it each time. */
  #endsHalf = false;
  #block: Block = {};
  #size = 0;

  /** The blocks that the text completes. */
  push(text: string): Block[] {
    const blocks: Block[] = [];
    const beganHalf = this.#endsHalf;
    if (text !== "") this.#endsHalf = text.endsWith("\r");
    // A long line comes in many parts, which are not searched again.
    if (!/[\r\n]/.test(text) && !beganHalf) {
      this.#rest += text;
      this.#check();
      return blocks;
    }
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    // The last part is no complete line yet. A carriage return at its end may be half of one.
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      this.#size += line.length;
      if (line !== "") {
        this.#field(line);
      } else {
        if (Object.keys(this.#block).length > 0) blocks.push(this.#block);
        this.#block = {};
        this.#size = 0;
      }
    }
    this.#check();
    return blocks;
  }

  #check(): void {
    if (this.#size + this.#rest.length > MAX_BLOCK_CHARS) throw new Error("an event is too long");
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    // A line that begins with a colon is a comment.
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    const block = this.#block;
    if (name === "data") block.data = block.data === undefined ? value : `${block.data}\n${value}`;
    else if (name === "event") block.event = value;
    else if (name === "id" && !value.includes("\0")) block.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) block.retry = Number(value);
  }
}
