// Forms from the schemas of the OpenAPI document. Only what a person changed is sent; errors of the
// API are shown beside the field that they name.
import { Declined, Problem } from "/console/api.js";
import { h, prose, select, uid } from "/console/dom.js";
import { resolve } from "/console/schema.js";

/** Longest text that gets a single line. */
const LINE_CHARS = 200;

function shape(document, given) {
  const schema = resolve(document, given);
  const parts = (schema.anyOf ?? schema.oneOf ?? []).map((part) => resolve(document, part));
  const kinds = [schema.type, ...parts.map((part) => part.type)].flat().filter(Boolean);
  const main = parts.find((part) => part.type !== "null");
  return {
    ...main,
    ...schema,
    kinds: kinds.filter((kind) => kind !== "null"),
    nullable: kinds.includes("null") || schema.enum?.includes(null),
  };
}

/** The input of one field: `read()` returns its value, `undefined` for "not given", or throws. */
function control(schema, value, id, name) {
  const kind = schema.kinds[0];
  const choices = schema.enum?.filter((one) => one !== null);
  if (kind === "boolean") return boolean(value, schema, id);
  if (choices) return choice(choices, value, schema, id);
  if (kind === "integer" || kind === "number") return numeric(kind, value, schema, id);
  const items = kind === "array" ? schema.items : null;
  if ((items?.type === "string" || items?.type === "integer") && areLines(value ?? []))
    return list(value, schema, id);
  if (kind === "array" || kind === "object" || !kind) return structured(value, schema, id);
  return text(value, schema, id, name);
}

/** Whether the input with one item per line returns the same items. */
function areLines(items) {
  return items.every((item) => typeof item === "number" || /^\S([^\r\n]*\S)?$/.test(item));
}

function boolean(value, schema, id) {
  const input = select(
    [...(schema.nullable ? [["", "not set"]] : []), ["true", "yes"], ["false", "no"]],
    value == null ? "" : String(value),
    { id },
  );
  return { input, read: () => (input.value === "" ? null : input.value === "true") };
}

function choice(choices, value, schema, id) {
  const input = select([["", schema.nullable ? "not set" : "choose…"], ...choices], value ?? "", {
    id,
  });
  return {
    input,
    read: () => (input.value === "" ? (schema.nullable ? null : undefined) : input.value),
  };
}

function numeric(kind, value, schema, id) {
  const input = h("input", {
    id,
    type: "text",
    inputmode: kind === "integer" ? "numeric" : "decimal",
    value: value ?? "",
    autocomplete: "off",
  });
  return {
    input,
    read: () => {
      const typed = input.value.trim();
      if (typed === "") return schema.nullable ? null : undefined;
      // What is no number is sent as text: the API says what is wrong with it.
      if (!/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(typed)) return typed;
      // A float of the API is what a browser has, too.
      if (kind === "integer" || !Number.isFinite(Number(typed))) refuseInexact(typed);
      return Number(typed);
    },
  };
}

function list(value, schema, id) {
  const input = h("textarea", {
    id,
    rows: "2",
    spellcheck: "false",
    value: (value ?? []).join("\n"),
    placeholder: "one per line",
  });
  return {
    input,
    read: () => {
      const lines = input.value
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean);
      if (!lines.length && schema.nullable) return null;
      return schema.items?.type === "integer"
        ? lines.map((line) => (/^-?\d+$/.test(line) ? (refuseInexact(line), Number(line)) : line))
        : lines;
    },
  };
}

function structured(value, schema, id) {
  const input = h("textarea", {
    id,
    class: "code",
    rows: "4",
    spellcheck: "false",
    value: value == null ? "" : JSON.stringify(value, null, 2),
    placeholder: "JSON",
  });
  return {
    input,
    read: () => {
      if (input.value.trim() === "") return schema.nullable ? null : undefined;
      let parsed;
      try {
        parsed = JSON.parse(input.value);
      } catch (error) {
        throw new Error(`This is not JSON: ${error.message}`);
      }
      refuseInexact(input.value);
      return parsed;
    },
  };
}

const NUMBERS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Refuses JSON with a number that a browser would change: the API keeps it as it is. */
function refuseInexact(json) {
  for (const [token] of json.matchAll(NUMBERS)) {
    const number = Number(token);
    const exact = /^-?\d+$/.test(token) ? Number.isSafeInteger(number) : Number.isFinite(number);
    if (!token.startsWith('"') && !exact)
      throw new Error(`A browser cannot keep a number like ${token}. Write this field with the API.`);
  }
}

function text(value, schema, id, name) {
  const most = schema.maxLength ?? 0;
  // A text without a limit of its own has the general one: a line is enough for most of them.
  const long = most > LINE_CHARS && most < 65_536 && !/url|address/.test(name);
  const common = { id, value: value ?? "", autocomplete: "off", dir: "auto" };
  const multi = long || /[\r\n]/.test(value ?? "");
  const hint = schema.format === "date-time" ? "2026-11-18T12:00:00Z" : null;
  const input = multi
    ? h("textarea", { ...common, rows: "3" })
    : h("input", { ...common, type: "text", placeholder: hint });
  return {
    input,
    read: () =>
      input.value === ""
        ? schema.nullable
          ? null
          : schema.minLength === 0
            ? ""
            : undefined
        : input.value,
  };
}

const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);

/**
 * The fields of a body. `values` are those of the record, for an edit.
 * Returns `{ element, read(), show(problem) }`; `read` returns null if a field cannot be read.
 */
export function form(document, schema, values, { only, skip = [], suggest } = {}) {
  const required = schema.required ?? [];
  const names = (only ?? Object.keys(schema.properties ?? {})).filter(
    (name) => !skip.includes(name),
  );
  names.sort((one, other) => Number(required.includes(other)) - Number(required.includes(one)));
  const summary = h("div", { class: "callout bad", role: "alert", hidden: true });
  const fields = names.map((name) => {
    const about = shape(document, schema.properties[name]);
    const id = uid();
    const made = control(about, values ? values[name] : about.default, id, name);
    const wrong = h("span", { class: "wrong", id: `${id}w` });
    const hint =
      about.description && h("span", { class: "hint", id: `${id}h` }, prose(about.description));
    made.input.setAttribute("aria-describedby", `${hint ? `${id}h ` : ""}${id}w`);
    made.input.name = name;
    if (required.includes(name)) made.input.required = true;
    const offered = suggest?.(name, made.input);
    const before = JSON.stringify(quiet(made.read));
    const shown = made.input.value;
    const element = h(
      "div",
      { class: "field" },
      h(
        "div",
        { class: "top" },
        h("label", { for: id }, name),
        h("span", { class: "kind" }, required.includes(name) ? "required" : kindOf(about)),
      ),
      made.input,
      offered,
      hint,
      wrong,
    );
    return { name, made, wrong, element, before, shown };
  });
  const clear = () => {
    summary.hidden = true;
    for (const field of fields) {
      field.wrong.textContent = "";
      field.made.input.removeAttribute("aria-invalid");
    }
  };
  const point = (name, message) => {
    const field = fields.find((one) => one.name === name);
    if (!field) return false;
    field.wrong.append(field.wrong.textContent ? " " : "", ...prose(message));
    field.made.input.setAttribute("aria-invalid", "true");
    return true;
  };
  const read = () => {
    clear();
    const body = {};
    let fine = true;
    for (const { name, made, before, shown } of fields) {
      try {
        const value = made.read();
        // Compared with what the input held: an input cannot hold every value as it is.
        const isChanged = JSON.stringify(value) !== before;
        if (values) {
          if (isChanged && !same(value, values[name])) body[name] = value ?? null;
        } else if (value !== undefined && (value !== null || isChanged)) {
          body[name] = value;
        }
      } catch (error) {
        // What nobody changed is not sent.
        if (!values || made.input.value !== shown) fine = point(name, error.message) && false;
      }
    }
    return fine ? body : null;
  };
  const show = (error) => {
    if (error instanceof Declined) return;
    clear();
    const rest = [];
    for (const one of error instanceof Problem ? error.errors : []) {
      const name = String(one.field ?? one.pointer ?? "")
        .replace(/^\//, "")
        .split(/[./[]/)[0];
      if (!point(name, one.message)) rest.push(one.message);
    }
    if (
      error instanceof Problem &&
      !error.errors.length &&
      !(error.param && point(error.param, error.message))
    )
      rest.push(error.message);
    if (!(error instanceof Problem)) rest.push(String(error.message ?? error));
    if (rest.length) {
      summary.replaceChildren(...prose(rest.join(" ")));
      summary.hidden = false;
    }
    element.querySelector("[aria-invalid]")?.focus();
  };
  const element = h(
    "div",
    {},
    summary,
    fields.map((field) => field.element),
    fields.length === 0 && h("p", { class: "muted" }, "Nothing to fill in."),
  );
  return {
    element,
    read,
    show,
    summary,
    input: (name) => fields.find((one) => one.name === name)?.made.input,
  };
}

function quiet(read) {
  try {
    return read();
  } catch {
    return null;
  }
}

function kindOf(about) {
  const kind = about.enum
    ? "choice"
    : about.format === "date-time"
      ? "time"
      : (about.kinds[0] ?? "JSON");
  return kind === "string" ? "text" : kind === "object" ? "JSON" : kind;
}
