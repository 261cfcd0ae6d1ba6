// What a follower yields, its options, and positions in the log.

/** One message of a live channel. */
export interface Message<Data = unknown> {
  /**
   * Type of the event, live name of the feed, `typing`, `online`, or `stream.reset` and
   * `presence.reset`.
   */
  type: string;
  /** The event with its envelope; for a feed, the new record. */
  data: Data;
  /** Only for events and records: `typing` and `online` are not in the log. */
  position?: string;
  user?: string;
  resource?: string;
  online?: boolean;
}

/** The log cannot be resumed from `requested`: read the lists in `refetch` again. */
export interface Reset {
  reason: string;
  requested?: string;
  resumed_at?: string;
  refetch?: string[];
}

/** Keeps the position across restarts of the process. */
export interface PositionStore {
  load(): string | null | undefined | Promise<string | null | undefined>;
  /** Called after a message was processed, which is when the loop asks for the next one. */
  save(position: string): void | Promise<void>;
}

export type FollowState =
  | { state: "connecting" }
  | { state: "open" }
  | { state: "waiting"; delay: number; error?: unknown };

export interface FollowOptions {
  /** `poll` reads one feed. Default: `sse`. */
  channel?: "sse" | "websocket" | "poll";
  /** Event types, patterns such as `order.*`, live names of feeds, `typing`, `online`. */
  types?: readonly string[];
  /** Only events of the record with this id. */
  resource?: string;
  /** Only events of the children of the record with this id. */
  parent?: string;
  /** The user who is online while this follower is connected with an API key. */
  user?: string;
  /** Name of the feed, for `poll`. */
  feed?: string;
  /** Start after this position. Default: what `positions` loads, otherwise now. */
  since?: string | number;
  positions?: PositionStore;
  /** Returns a channel token. Called before the first connection and when a token has expired. */
  token?: () => string | Promise<string>;
  /** Called for `stream.reset` instead of yielding it; the follower waits for it. */
  onReset?: (reset: Reset) => void | Promise<void>;
  onState?: (state: FollowState) => void | Promise<void>;
  signal?: AbortSignal;
  /** For platforms without a global `WebSocket`. */
  WebSocket?: typeof WebSocket;
  /** Paths of the service, if the schema changes them. */
  mount?: string;
  socket?: string;
}

/** What a channel reports while it is connected. */
export type Item =
  /** The server accepted the connection. Its position counts only if there was none before. */
  | { open: true; position?: string }
  /** Nothing that the follower asks for happened up to here. */
  | { position: string }
  | { message: Message };

/** Why a connection ended, and what to do next. */
export interface End {
  /** The follower must stop. */
  fatal?: unknown;
  /** Reconnect without a delay. */
  now?: boolean;
  /** Milliseconds that the server asks to wait. */
  delay?: number;
  /** The token is no longer valid. */
  refresh?: boolean;
  error?: unknown;
}

/** What a channel needs to connect. */
export interface Connection {
  position: string | undefined;
  token: string | undefined;
  /** Ends the connection. */
  abort: AbortController;
}

export const RESET = "stream.reset";

/** Whether the position is not after `last` in the same log. */
export function isPast(position: string, last: string | undefined): boolean {
  if (last === undefined) return false;
  const [epoch, number] = split(position);
  const [known, reached] = split(last);
  return (epoch === known || !epoch || !known) && number <= reached;
}

function split(position: string): [string, number] {
  const dot = position.lastIndexOf(".");
  return [position.slice(0, Math.max(dot, 0)), Number(position.slice(dot + 1))];
}
