// Explorer: builds a request for any operation of the OpenAPI document, sends it, and shows the same
// request as curl, TypeScript and Python.
import { Declined, Problem, problem, request, write } from "/console/api.js";
import {
  badge,
  card,
  code,
  h,
  head,
  json,
  labelled,
  milliseconds,
  padded,
  replace,
  select,
} from "/console/dom.js";
import { bodySchema, resolve } from "/console/schema.js";

const NO_BODY = ["GET", "DELETE"];
/** Parameters that the console sets itself, or that make no sense here. */
const HIDDEN = ["If-None-Match", "Last-Event-ID"];

export async function show(place, { segments, query, service }) {
  const id =
    segments[0] ??
    service.operations.find(
      (one) => one.method === "GET" && service.collections.some((other) => other.path === one.path),
    )?.id ??
    service.operations[0]?.id;
  const chosen = service.operations.find((one) => one.id === id) ?? service.operations[0];
  if (!chosen)
    return replace(
      place,
      head("Explorer"),
      h("div", { class: "callout" }, "The OpenAPI document has no operation."),
    );
  const response = h(
    "div",
    { class: "stack" },
    card(
      "Response",
      padded(h("p", { class: "muted" }, "Send the request to see what the server answers.")),
    ),
  );
  const snippets = h("div", { class: "stack" });
  const fields = parameterFields(service, chosen, query);
  const body = bodyField(service, chosen, query);
  const built = () => build(chosen, fields, body);
  const draw = () => drawSnippets(snippets, built());
  const go = h("button", { type: "submit", class: "primary" }, "Send");
  const form = h("form", {
    oninput: draw,
    onchange: draw,
    onsubmit: async (event) => {
      event.preventDefault();
      const next = new URLSearchParams(
        fields.filter((one) => one.input.value).map((one) => [one.name, one.input.value]),
      );
      history.replaceState(
        null,
        "",
        `#/explorer/${encodeURIComponent(chosen.id)}${next.size ? `?${next}` : ""}`,
      );
      go.disabled = true;
      await send(response, built()).finally(() => (go.disabled = false));
    },
  });
  const required = fields.filter((one) => one.required);
  const optional = fields.filter((one) => !one.required);
  const line = (one) =>
    labelled(
      `${one.name}${one.required ? "" : ` (${one.in})`}`,
      one.input,
      one.description?.slice(0, 200),
    );
  form.append(
    labelled(
      "Operation",
      operationPicker(service, chosen),
      chosen.operation.summary ?? chosen.operation.description,
    ),
    ...required.map(line),
    ...(body ? [labelled("Body", body)] : []),
    ...(optional.length
      ? [
          h(
            "details",
            { open: optional.some((one) => one.input.value) },
            h("summary", {}, `${optional.length} optional parameters`),
            h("br"),
            optional.map(line),
          ),
        ]
      : []),
    h("br"),
    go,
  );
  replace(
    place,
    head("Explorer", [], "Any request of the API, with your key."),
    h(
      "div",
      { class: "split" },
      card("Request", padded(form)),
      h("div", { class: "stack" }, response, snippets),
    ),
  );
  draw();
}

function operationPicker(service, chosen) {
  const tags = [...new Set(service.operations.map((one) => one.tag))];
  const picker = h(
    "select",
    {
      "aria-label": "Operation",
      onchange: () => (location.hash = `#/explorer/${encodeURIComponent(picker.value)}`),
    },
    tags.map((tag) =>
      h(
        "optgroup",
        { label: tag },
        service.operations
          .filter((one) => one.tag === tag)
          .map((one) =>
            h("option", { value: one.id, selected: one === chosen }, `${one.method} ${one.path}`),
          ),
      ),
    ),
  );
  return picker;
}

/** The parameters, each with its input. */
function parameterFields(service, chosen, query) {
  return chosen.parameters
    .filter((one) => !HIDDEN.includes(one.name))
    .map((one) => {
      const schema = resolve(service.document, one.schema);
      const input = schema.enum
        ? select([["", "not set"], ...schema.enum.map(String)], query.get(one.name) ?? "")
        : h("input", {
            type: "text",
            autocomplete: "off",
            spellcheck: "false",
            value: query.get(one.name) ?? "",
            placeholder: one.name === "Idempotency-Key" ? "made for each request" : "",
          });
      return { ...one, input };
    });
}

function bodyField(service, chosen, query) {
  const needsBody = !NO_BODY.includes(chosen.method) && chosen.operation.requestBody;
  return needsBody
    ? h("textarea", {
        class: "code",
        rows: "10",
        spellcheck: "false",
        value:
          query.get("body") ??
          JSON.stringify(
            sample(service.document, bodySchema(service.document, chosen.operation)),
            null,
            2,
          ),
      })
    : null;
}

/** A body with the required members, or all of them if none is required. */
function sample(document, schema) {
  const properties = Object.entries(schema.properties ?? {});
  const wanted = properties.filter(([name]) => schema.required?.includes(name));
  return Object.fromEntries(
    (wanted.length ? wanted : properties.slice(0, 3)).map(([name, given]) => [
      name,
      value(document, given),
    ]),
  );
}

function value(document, given, depth = 0) {
  const schema = resolve(document, given);
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const kind = [schema.type ?? resolve(document, schema.anyOf?.[0]).type].flat()[0];
  if (kind === "integer" || kind === "number") return schema.minimum ?? 1;
  if (kind === "boolean") return false;
  if (kind === "array") return [];
  if (kind === "object")
    return depth > 2
      ? {}
      : Object.fromEntries(
          (schema.required ?? []).map((name) => [
            name,
            value(document, schema.properties?.[name], depth + 1),
          ]),
        );
  return "";
}

function build(chosen, fields, body) {
  const given = (place) => fields.filter((one) => one.in === place && one.input.value !== "");
  const path = given("path").reduce(
    (text, one) => text.replace(`{${one.name}}`, encodeURIComponent(one.input.value)),
    chosen.path,
  );
  const query = new URLSearchParams(
    given("query").map((one) => [one.name, one.input.value]),
  ).toString();
  const headers = Object.fromEntries(given("header").map((one) => [one.name, one.input.value]));
  return {
    method: chosen.method,
    path: path + (query && `?${query}`),
    headers,
    body: body?.value.trim() || null,
  };
}

async function send(place, built) {
  replace(place, card("Response", padded(h("p", { class: "muted" }, "Waiting…"))));
  const began = performance.now();
  const options = { headers: built.headers, body: built.body ?? undefined, raw: true };
  const key = Object.entries(built.headers).find(
    ([name]) => name.toLowerCase() === "idempotency-key",
  )?.[1];
  let answer;
  try {
    answer =
      built.method === "GET"
        ? await request("GET", built.path, options)
        : await write(built.method, built.path, { ...options, idempotencyKey: key });
  } catch (error) {
    if (error instanceof Declined)
      return replace(place, card("Response", padded(h("p", { class: "muted" }, error.message))));
    if (!(error instanceof Problem)) return replace(place, problem(error));
    answer = { status: error.status, data: { error: error.details }, headers: new Headers() };
  }
  const took = performance.now() - began;
  const tone = answer.status >= 400 ? "bad" : "ok";
  replace(
    place,
    card(
      "Response",
      padded(
        typeof answer.data === "string" ? code(answer.data) : json(answer.data),
        h(
          "details",
          {},
          h("summary", {}, "Headers"),
          code([...answer.headers].map(([name, text]) => `${name}: ${text}`).join("\n")),
        ),
      ),
      h(
        "span",
        { class: "row" },
        h("span", { class: "small muted" }, milliseconds(took)),
        badge(answer.status, tone),
      ),
    ),
  );
}

const TABS = [
  ["curl", "curl"],
  ["ts", "TypeScript"],
  ["py", "Python"],
];
let tab = "curl";

function drawSnippets(place, built) {
  const write = { curl, ts: typescript, py: python };
  const choose = (key) => {
    tab = key;
    drawSnippets(place, built);
  };
  replace(
    place,
    card(
      "As code",
      padded(
        h(
          "div",
          { class: "tabs", role: "tablist" },
          TABS.map(([key, title]) =>
            h(
              "button",
              {
                type: "button",
                role: "tab",
                "aria-selected": String(key === tab),
                onclick: () => choose(key),
              },
              title,
            ),
          ),
        ),
        code(write[tab](built)),
      ),
    ),
  );
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function allHeaders({ headers, body }) {
  return Object.entries({ ...headers, ...(body ? { "Content-Type": "application/json" } : {}) });
}

function curl(built) {
  const lines = [`curl ${quoted(location.origin + built.path)} -u $KEY:`];
  if (built.method !== "GET" && !(built.method === "POST" && built.body))
    lines[0] = `curl -X ${built.method} ${quoted(location.origin + built.path)} -u $KEY:`;
  for (const [name, text] of allHeaders(built)) lines.push(`-H ${quoted(`${name}: ${text}`)}`);
  if (built.body) lines.push(`-d ${quoted(compact(built.body))}`);
  return lines.join(" \\\n  ");
}

function compact(body) {
  try {
    return JSON.stringify(JSON.parse(body));
  } catch {
    return body;
  }
}

function typescript(built) {
  const headers = [["Authorization", null], ...allHeaders(built)].map(
    ([name, text]) =>
      `    ${JSON.stringify(name)}: ${text === null ? "`Bearer ${process.env.KEY}`" : JSON.stringify(text)},`,
  );
  return [
    `const response = await fetch(${JSON.stringify(location.origin + built.path)}, {`,
    `  method: ${JSON.stringify(built.method)},`,
    "  headers: {",
    ...headers,
    "  },",
    ...(built.body ? [`  body: JSON.stringify(${compact(built.body)}),`] : []),
    "});",
    "if (!response.ok) throw new Error((await response.json()).error.message);",
    "const data = await response.json();",
  ].join("\n");
}

function python(built) {
  const headers = [
    `    "Authorization": f"Bearer {os.environ['KEY']}",`,
    ...allHeaders(built).map(
      ([name, text]) => `    ${JSON.stringify(name)}: ${JSON.stringify(text)},`,
    ),
  ];
  return [
    "import json, os, urllib.request",
    "",
    "request = urllib.request.Request(",
    `    ${JSON.stringify(location.origin + built.path)},`,
    `    method=${JSON.stringify(built.method)},`,
    "    headers={",
    ...headers.map((line) => `    ${line}`),
    "    },",
    ...(built.body
      ? [`    data=json.dumps(json.loads(${JSON.stringify(compact(built.body))})).encode(),`]
      : []),
    ")",
    "with urllib.request.urlopen(request) as response:",
    "    data = json.load(response)",
  ].join("\n");
}
