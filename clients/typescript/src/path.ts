// Builds paths from ids.

/**
 * Tag for template strings that encodes each value as one path segment:
 * path`/v1/books/${id}/reviews`. An empty value would name the collection, and a dot another
 * resource, so both are refused.
 */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  let out = parts[0] ?? "";
  values.forEach((value, index) => {
    const text = String(value);
    if (text === "" || text === "." || text === "..") {
      throw new TypeError(`"${text}" is not an id, in ${parts.join("…")}`);
    }
    out += encodeURIComponent(text) + parts[index + 1];
  });
  return out;
}
