// What a response says about a record besides its fields. Kept outside the record, so that records
// have exactly the members that their type names.

export interface Meta {
  status: number;
  /** For `ifMatch`. */
  etag?: string;
  requestId?: string;
  /** The server had executed this request before and returned the stored response. */
  replayed: boolean;
  /** Position of the log at which the response was read. Follow from there to miss nothing. */
  position?: string;
  headers: Headers;
}

const metas = new WeakMap<object, Meta>();

/** The metadata of a record or page that a client returned; undefined for other objects. */
export function meta(value: object): Meta | undefined {
  return metas.get(value);
}

export function remember(value: unknown, response: Response): void {
  if (typeof value !== "object" || value === null) return;
  const { headers, status } = response;
  const found: Meta = { status, replayed: headers.get("idempotent-replayed") === "true", headers };
  const set = (name: "etag" | "requestId" | "position", header: string) => {
    const text = headers.get(header);
    if (text !== null) found[name] = text;
  };
  set("etag", "etag");
  set("requestId", "request-id");
  set("position", "x-stream-position");
  metas.set(value, found);
}
