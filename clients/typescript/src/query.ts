// Query strings.

/** Parameters whose value is not a filter: commas in them are not quoted. */
const PLAIN = new Set([
  "limit",
  "page",
  "after",
  "sort",
  "q",
  "include",
  "expand",
  "fields",
  "since",
  "wait",
  "types",
]);

/** `?name=value&…`, or nothing. Undefined values are left out. */
export function searchParams(query: Record<string, unknown> = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    const values = Array.isArray(value) ? value : [value];
    params.set(name, values.map((one) => text(one, PLAIN.has(name))).join(","));
  }
  const out = params.toString();
  return out && `?${out}`;
}

/** A filter splits its value at commas and reads `null`, so a text with those is quoted. */
function text(value: unknown, plain: boolean): string {
  if (value instanceof Date) return value.toISOString();
  if (typeof value !== "string" || plain) return String(value);
  return value === "null" || /^"|,/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
}
