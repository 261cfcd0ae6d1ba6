// Records: the table of a collection, the page of a record, the forms to create and edit one.
import { get, problem, Problem, request, write } from "/console/api.js";
import {
  bones,
  cell,
  code,
  crumbs,
  dialog,
  empty,
  h,
  head,
  labelled,
  padded,
  replace,
  select,
  short,
  table,
  toast,
  uid,
} from "/console/dom.js";
import { form } from "/console/form.js";
import { apiPath, recordLink, service } from "/console/schema.js";

const PAGE = 25;
/** Columns that are shown unless others are chosen: a wide record stays readable. */
const USUAL_COLUMNS = 7;
/** Parameters of the address that are not filters. */
const OWN = ["sort", "after", "q", "columns", "as"];

export async function show(place, context) {
  const { segments, service } = context;
  if (!segments.length || !segments[0]) return overview(place, service);
  const names = segments.filter((_, at) => at % 2 === 0);
  const collection = service.find(names.at(-1));
  if (!collection)
    return replace(
      place,
      head("Records"),
      h("div", { class: "callout" }, `There is no collection “${names.at(-1)}”.`),
    );
  if (segments.length % 2) return list(place, context, collection);
  const { record } = await import("/console/record.js");
  return record(place, context, collection);
}

function overview(place, service) {
  const columns = [
    { title: "Collection", cell: (one) => one.name },
    { title: "What it is", cell: (one) => h("span", { class: "muted" }, one.description ?? "") },
    { title: "Fields", num: true, cell: (one) => one.fields.length },
    { title: "Actions", cell: (one) => one.actions.map((action) => action.name).join(", ") || "–" },
  ];
  const rows = service.collections.filter((one) => one.parents.length === 0);
  const content = rows.length
    ? table({
        columns,
        rows,
        open: (one) => `#/records/${encodeURIComponent(one.name)}`,
        label: "Collections",
      })
    : empty(
        "No collections yet",
        "Declare the first one in the schema file and start the server again.",
        code("restive init\nrestive serve --schema restive.toml"),
      );
  replace(
    place,
    head("Records", [], "One table for each collection of the schema."),
    h("div", { class: "card" }, content),
  );
}

export function trail(segments) {
  const parts = [["Records", "#/records"]];
  segments.slice(0, -1).forEach((segment, at) =>
    parts.push([
      segment,
      `#/records/${segments
        .slice(0, at + 1)
        .map(encodeURIComponent)
        .join("/")}`,
    ]),
  );
  return crumbs(...parts, segments.at(-1));
}

export function here(segments, query) {
  const text = query.toString();
  return `#/records/${segments.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The link of a reference, if its page can be found from the id alone. */
export function reference(service, field, value, segments) {
  if (!field.ref || typeof value !== "string") return null;
  const target = service.find(field.ref) ?? service.ofObject.get(field.ref);
  if (!target) return null;
  if (target.name === "webhook-endpoints")
    return `#/webhooks/endpoints/${encodeURIComponent(value)}`;
  const known = segments.indexOf(target.name);
  if (target.parents.length && known < 0) return null;
  return target.parents.length
    ? here(segments.slice(0, known + 2), new URLSearchParams())
    : recordLink(target, value);
}

// The table

async function list(place, context, collection) {
  const { segments, query, signal, service } = context;
  const path = apiPath(service.mount, segments);
  const go = (changes) => {
    const next = new URLSearchParams(query);
    next.delete("after");
    for (const [name, value] of Object.entries(changes))
      value === null || value === "" ? next.delete(name) : next.set(name, value);
    location.hash = here(segments, next);
  };
  const tools = collection.create
    ? [
        h(
          "button",
          { class: "primary", type: "button", onclick: () => create(context, collection, path) },
          `New ${collection.object.replaceAll("_", " ")}`,
        ),
      ]
    : [];
  const result = h(
    "div",
    { class: "card" },
    bones(Math.min(collection.fields.length, USUAL_COLUMNS)),
  );
  replace(
    place,
    head(trail(segments), tools, collection.description),
    filterBar(collection, query, go),
    result,
  );
  const asked = new URLSearchParams(query);
  asked.delete("columns");
  asked.delete("as");
  asked.set("limit", PAGE);
  try {
    const answer = await request("GET", `${path}?${asked}`, { signal, version: query.get("as") });
    const { data: rows, pagination } = answer.data;
    const shown = columnsOf(collection, query);
    const columns = shown.map((field) => ({
      title: field.name,
      num: (field.kind === "integer" || field.kind === "number") && field.name !== "id",
      sort: collection.sorts.includes(field.name) ? field.name : null,
      cell: (row) =>
        cell(row[field.name], {
          link: reference(service, field, row[field.name], segments),
          format: formatOf(collection, field),
        }),
    }));
    const content = rows.length
      ? table({
          columns,
          rows,
          label: collection.name,
          sorted: query.get("sort") ?? "",
          onsort: (sort) => go({ sort }),
          open: (row) => here([...segments, String(row.id)], withVersion(query)),
        })
      : nothing(collection, query, path, go);
    replace(
      result,
      content,
      pager({
        query,
        pagination,
        rows,
        go: (after) => {
          const next = new URLSearchParams(query);
          next.set("after", after);
          location.hash = here(segments, next);
        },
        first: () => go({}),
      }),
    );
  } catch (error) {
    if (!signal.aborted)
      replace(
        result,
        padded(
          problem(error),
          error instanceof Problem && error.code?.startsWith("cursor")
            ? h("button", { type: "button", onclick: () => go({}) }, "Back to the first page")
            : null,
        ),
      );
  }
}

function withVersion(query) {
  return new URLSearchParams(query.get("as") ? { as: query.get("as") } : {});
}

export function formatOf(collection, field) {
  if (field.name === "id") return "id";
  return field.name === collection.state ? "state" : field.format;
}

export function columnsOf(collection, query) {
  const fields = collection.fields.filter((field) => field.name !== "object" && !field.isList);
  const chosen = query
    .get("columns")
    ?.split(",")
    .map((name) => fields.find((field) => field.name === name))
    .filter(Boolean);
  if (chosen?.length) return chosen;
  const short = fields.filter(
    (field) =>
      field.name !== "updated_at" &&
      (fields.length <= USUAL_COLUMNS || !["object", "array"].includes(field.kind)),
  );
  const important = short.filter(
    (field) =>
      field.name === "id" || field.name === "created_at" || field.name === collection.state,
  );
  const rest = short
    .filter((field) => !important.includes(field))
    .slice(0, USUAL_COLUMNS - important.length);
  return short.filter((field) => important.includes(field) || rest.includes(field));
}

function pager({ query, pagination, rows, go, first }) {
  if (!rows.length && !query.get("after")) return null;
  return h(
    "div",
    { class: "pager" },
    h(
      "span",
      { class: "grow" },
      `${rows.length} ${rows.length === 1 ? "record" : "records"} on this page`,
    ),
    query.get("after") && [
      h("button", { type: "button", onclick: first }, "First page"),
      h("button", { type: "button", onclick: () => history.back() }, "Previous"),
    ],
    h(
      "button",
      {
        type: "button",
        disabled: !pagination?.next_cursor,
        onclick: () => go(pagination.next_cursor),
      },
      "Next",
    ),
  );
}

function filterBar(collection, query, go) {
  const active = [...query.entries()].filter(([name]) => !OWN.includes(name));
  const chip = ([name, value]) =>
    h(
      "span",
      { class: "chip" },
      `${name} `,
      h("b", {}, value),
      h(
        "button",
        {
          type: "button",
          class: "icon small",
          "aria-label": `Remove the filter ${name}`,
          onclick: () => go({ [name]: null }),
        },
        "✕",
      ),
    );
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": `Search ${collection.name}`,
    value: query.get("q") ?? "",
    onchange: () => go({ q: search.value.trim() }),
  });
  return h(
    "div",
    { class: "filters" },
    collection.search && search,
    active.map(chip),
    collection.filters.length > 0 &&
      h("button", { type: "button", onclick: () => addFilter(collection, go) }, "Filter"),
    h(
      "button",
      { type: "button", class: "link", onclick: () => chooseColumns(collection, query, go) },
      "Columns",
    ),
    query.get("as") &&
      h(
        "span",
        { class: "chip" },
        "as version ",
        h("b", {}, query.get("as")),
        h(
          "button",
          {
            type: "button",
            class: "icon small",
            "aria-label": "Show the newest version",
            onclick: () => go({ as: null }),
          },
          "✕",
        ),
      ),
  );
}

async function addFilter(collection, go) {
  const names = collection.filters.map((filter) => filter.name);
  const field = select(names, names[0]);
  const place = h("div", {});
  let input = null;
  const draw = () => {
    const filter = collection.filters.find((one) => one.name === field.value);
    input = filter.choices
      ? select(filter.choices, "")
      : h("input", { type: "text", autocomplete: "off" });
    replace(place, labelled("Value", input, filter.description));
  };
  field.addEventListener("change", draw);
  draw();
  const answer = await dialog({
    title: "Filter",
    body: [labelled("Field", field), place],
    casual: true,
    submit: "Filter",
    onsubmit: (close) => close([field.value, input.value]),
  });
  if (answer) go({ [answer[0]]: answer[1] });
}

async function chooseColumns(collection, query, go) {
  const shown = columnsOf(collection, query);
  const boxes = collection.fields
    .filter((field) => field.name !== "object" && !field.isList)
    .map((field) => {
      const input = h("input", {
        type: "checkbox",
        checked: shown.includes(field),
        value: field.name,
      });
      return { input, element: h("label", { class: "check" }, input, field.name) };
    });
  const answer = await dialog({
    title: "Columns",
    body: boxes.map((box) => box.element),
    casual: true,
    submit: "Show",
    onsubmit: (close) =>
      close(boxes.filter((box) => box.input.checked).map((box) => box.input.value)),
  });
  if (answer) go({ columns: answer.join(",") });
}

function nothing(collection, query, path, go) {
  const filtered = [...query.keys()].some((name) => name === "q" || !OWN.includes(name));
  if (filtered) {
    const clear = Object.fromEntries(
      [...query.keys()]
        .filter((name) => name === "q" || !OWN.includes(name))
        .map((name) => [name, null]),
    );
    return empty(
      "Nothing matches",
      "No record fits the search and the filters.",
      h("button", { type: "button", onclick: () => go(clear) }, "Clear them"),
    );
  }
  const example = Object.fromEntries(
    (collection.create?.schema.required ?? []).map((name) => [name, sample(collection, name)]),
  );
  return empty(
    `No ${collection.name} yet`,
    collection.create
      ? "Create the first one here or from a terminal:"
      : "Records appear here as they are created.",
    collection.create &&
      code(
        `curl ${location.origin}${path} -u $KEY: \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example)}'`,
      ),
  );
}

function sample(collection, name) {
  const schema = collection.create.schema.properties?.[name] ?? {};
  const kind = [schema.type].flat()[0];
  return (
    schema.enum?.[0] ??
    (kind === "integer" || kind === "number"
      ? (schema.minimum ?? 1)
      : kind === "boolean"
        ? true
        : "…")
  );
}

// Writing

async function create(context, collection, path) {
  const fields = form(context.service.document, collection.create.schema, undefined, {
    suggest: suggestions(context, collection),
  });
  const made = await dialog({
    title: `New ${collection.object.replaceAll("_", " ")}`,
    body: fields.element,
    submit: "Create",
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      const options = { body, signal, what: `Create a live ${collection.object}?` };
      try {
        close((await write("POST", path, options)).data);
      } catch (error) {
        fields.show(error);
      }
    },
  });
  if (!made) return;
  toast(`Created ${made.id}.`);
  location.hash = here([...context.segments, String(made.id)], new URLSearchParams());
}

/** Offers the newest records that a reference can name, with their first text; typing searches. */
export function suggestions({ service, signal }, collection) {
  return (name, input) => {
    const field = collection.fields.find((one) => one.name === name);
    const target = field?.ref && (service.find(field.ref) ?? service.ofObject.get(field.ref));
    if (!target || target.parents.length) return null;
    const list = h("datalist", { id: uid("l") });
    const label = target.fields.find((one) => one.kind === "string" && !one.readOnly)?.name;
    const read = async () => {
      const words = input.value.trim();
      const search = target.search && words && !/_[0-9a-z]{20,}$/.test(words);
      const query = search ? `&q=${encodeURIComponent(words)}` : "";
      const page = await get(`${target.path}?limit=20${query}`, { signal }).catch(() => ({
        data: [],
      }));
      const option = (one) =>
        h("option", { value: String(one.id) }, short(String(one[label] ?? one.id)));
      replace(list, page.data.map(option));
    };
    input.setAttribute("list", list.id);
    input.addEventListener("focus", read);
    input.addEventListener("input", read);
    return list;
  };
}
