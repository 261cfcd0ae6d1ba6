// By what events are ordered: the resource of an event, and which state of it the event has. The
// rules are those of restive-kit.

export interface Order {
  /** Type and id of `data.object`. */
  resource?: string;
  /** A place in its history. Two are comparable if they have the same first letter. */
  revision?: string;
}

type Members = Record<string, unknown>;

/** Nothing if the body has no object with an id. */
export function orderOf(body: string): Order {
  let event: unknown;
  try {
    event = JSON.parse(body);
  } catch {
    return {};
  }
  const object = membersOf(membersOf(membersOf(event)["data"])["object"]);
  if (typeof object["id"] !== "string") return {};
  const type = typeof object["object"] === "string" ? object["object"] : "";
  const revision = revisionOf(membersOf(event), object);
  return { resource: `${type} ${object["id"]}`, ...(revision !== undefined && { revision }) };
}

/** Whether the resource has a newer state at the other revision. False if that cannot be known. */
export function isBefore(revision: string | undefined, other: string | undefined): boolean {
  if (revision === undefined || other === undefined) return false;
  return revision[0] === other[0] && revision < other;
}

/**
 * The time of the change, as restive writes it: `version` and `updated` can be fields of such a
 * resource that mean something else. Then what other providers have, from the most to the least
 * precise; last the second of the event.
 */
function revisionOf(event: Members, object: Members): string | undefined {
  const time = object["updated_at"];
  // Without the Z, a time with fewer digits sorts before one with more.
  const isTime = typeof time === "string" && /^\d{4}-\d\d-\d\d[ -~]*Z$/.test(time);
  if (isTime) return `t${time.slice(0, -1)}`;
  return (
    number("v", object["version"]) ??
    number("s", event["sequence"]) ??
    number("u", object["updated"]) ??
    number("u", object["updated_at"]) ??
    number("c", event["created"])
  );
}

function number(mark: string, value: unknown): string | undefined {
  if (!Number.isSafeInteger(value) || (value as number) < 0) return undefined;
  return mark + String(value).padStart(20, "0");
}

function membersOf(value: unknown): Members {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as Members) : {};
}
