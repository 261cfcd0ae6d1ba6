// Versions: who uses what, and the changelog. Schema: collections, fields and references as a diagram,
// the file, and the plan of an edit.
import { get, Problem, problem, request, tell, write } from "/console/api.js";
import {
  badge,
  bones,
  card,
  code,
  empty,
  h,
  head,
  labelled,
  number,
  padded,
  replace,
  s,
  select,
  table,
  time,
  toast,
} from "/console/dom.js";

export async function show(place, context) {
  const { service, signal } = context;
  const usage = h("div", {}, bones(4, 3));
  const log = h("div", { class: "stack" }, h("span", { class: "bone" }));
  const pin = h("div", {}, h("span", { class: "bone" }));
  replace(
    place,
    head(
      "Versions",
      [],
      "A client names its version by date. Older versions stay until you end them.",
    ),
    h(
      "div",
      { class: "two" },
      h("div", { class: "stack" }, card("Use", usage), card("Changelog", padded(log))),
      card("This account", padded(pin)),
    ),
  );
  const fail = (part) => (error) =>
    !signal.aborted &&
    replace(
      part,
      padded(
        error instanceof Problem && error.status === 403
          ? h("p", { class: "muted" }, error.message)
          : problem(error),
      ),
    );
  get(`${service.mount}/version-usage`, { signal })
    .then((found) => {
      const since = found.since
        ? h("p", { class: "small muted" }, "Counted since ", time(found.since), ".")
        : null;
      replace(
        usage,
        table({
          label: "Version use",
          rows: found.data,
          columns: [
            {
              title: "Version",
              cell: (one) => [one.version, one.pinned ? [" ", badge("pinned", "accent")] : ""],
            },
            { title: "Requests", num: true, cell: (one) => number(one.requests) },
            { title: "Last used", cell: (one) => time(one.last_used_at) },
            { title: "Deprecated", cell: (one) => time(one.deprecated) },
            { title: "Ends", cell: (one) => time(one.sunset) },
          ],
        }),
        old("Deprecated fields in use", found.deprecated_fields),
        old("Deprecated collections in use", found.deprecated_collections),
        since && padded(since),
      );
    })
    .catch(fail(usage));
  request("GET", "/changelog", { signal, headers: { Accept: "text/markdown" } })
    .then(({ data }) => replace(log, markdown(String(data))))
    .catch(fail(log));
  account(context, pin).catch(fail(pin));
}

function old(title, rows) {
  if (!rows?.length) return null;
  return padded(
    h("h3", {}, title),
    h(
      "ul",
      {},
      rows.map((one) =>
        h(
          "li",
          {},
          `${one.collection ?? ""}${one.field ? `.${one.field}` : ""}: ${number(one.requests)} requests`,
        ),
      ),
    ),
  );
}

async function account({ service, signal }, place) {
  const found = await get(`${service.mount}/account`, { signal });
  const picker = select(service.versions, found.api_version ?? service.version, {
    "aria-label": "Version",
  });
  const move = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        try {
          await write("POST", `${service.mount}/account`, {
            body: { api_version: picker.value },
            what: "Move this account to another version?",
          });
          toast(`The account uses ${picker.value} now.`);
        } catch (error) {
          tell(error);
        }
      },
    },
    "Move the account",
  );
  replace(
    place,
    h("p", { class: "muted" }, "Requests that name no version use the version of the account."),
    h("br"),
    labelled(`Version of “${found.name ?? found.id}”`, picker),
    move,
  );
}

/** The few forms of Markdown that the changelog has. Links lead to pages of this service only. */
export function markdown(text) {
  const inline = (line) =>
    line.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((part) => {
      const link = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part);
      if (link) return h("a", { href: link[2] }, link[1]);
      return part.startsWith("`") && part.endsWith("`") && part.length > 2
        ? h("code", {}, part.slice(1, -1))
        : part;
    });
  return text.split(/\n/).map((line) => {
    const heading = /^(#{1,4}) (.*)$/.exec(line);
    if (heading) return h(heading[1].length < 3 ? "h2" : "h3", {}, inline(heading[2]));
    if (/^\s*[-*] /.test(line))
      return h("p", { class: "item" }, "• ", inline(line.replace(/^\s*[-*] /, "")));
    return line.trim() ? h("p", {}, inline(line)) : null;
  });
}

// Schema

export async function showSchema(place, context) {
  const { service } = context;
  const body = h("div", { class: "stack" });
  replace(
    place,
    head(
      "Schema",
      [
        h("a", { class: "button", href: "/openapi.json" }, "OpenAPI"),
        h("a", { class: "button", href: "/asyncapi.json" }, "AsyncAPI"),
      ],
      service.document.info?.description?.split("\n")[0],
    ),
    body,
  );
  replace(
    body,
    card(
      "Collections and references",
      padded(
        diagram(service),
        h(
          "div",
          { class: "legend" },
          h("span", {}, "solid line: reference"),
          h("span", {}, "dashed line: child of"),
        ),
      ),
    ),
    service.collections.map((one) =>
      card(
        one.name,
        table({
          label: one.name,
          rows: one.fields.filter((field) => !field.isList),
          columns: [
            { title: "Field", cell: (field) => h("span", { class: "mono" }, field.name) },
            {
              title: "Type",
              cell: (field) =>
                field.ref
                  ? `reference to ${field.ref}`
                  : field.choices
                    ? field.choices.join(" | ")
                    : field.format === "date-time"
                      ? "time"
                      : field.kind,
            },
            {
              title: "",
              cell: (field) =>
                field.readOnly
                  ? badge("assigned")
                  : one.create?.schema.required?.includes(field.name)
                    ? badge("required", "accent")
                    : "",
            },
            {
              title: "About",
              cell: (field) => h("span", { class: "muted" }, field.description ?? ""),
            },
          ],
        }),
        h(
          "a",
          { href: one.parents.length ? "#/records" : `#/records/${encodeURIComponent(one.name)}` },
          "Records",
        ),
      ),
    ),
  );
  file(context, body);
}

/** The schema file and the plan of an edit, if the server offers them. */
async function file({ service, signal }, place) {
  const path = `${service.mount}/schema`;
  const offered = service.operations.some((one) => one.path === path);
  const found = offered ? await get(path, { signal }).catch((error) => error) : null;
  if (signal.aborted) return;
  if (!found?.text) {
    const why =
      found instanceof Problem && found.status === 403
        ? found.message
        : "The file is on the server. Compare an edit with it before you start the server again:";
    return place.append(
      card(
        "Plan an edit",
        padded(
          h("p", { class: "muted" }, why),
          h("br"),
          code("restive plan restive.toml edited.toml", "oneline"),
        ),
      ),
    );
  }
  const edit = h("textarea", { class: "code", rows: "16", spellcheck: "false", value: found.text });
  const result = h("div", { role: "status" });
  const check = h(
    "button",
    {
      type: "button",
      class: "primary",
      onclick: async () => {
        try {
          const { data } = await request("POST", `${path}/plan`, { body: { text: edit.value } });
          replace(result, report(data));
        } catch (error) {
          replace(
            result,
            h(
              "div",
              { class: "callout bad" },
              h("h2", {}, "The edit is not a valid schema"),
              h(
                "pre",
                {},
                [error.message, ...(error.errors ?? []).map((one) => one.message)].join("\n"),
              ),
            ),
          );
        }
      },
    },
    "Plan this edit",
  );
  place.append(
    card(
      "The file",
      padded(
        labelled(
          "Schema",
          edit,
          "Edit it here to see what the edit changes for clients and data. Nothing is written.",
        ),
        check,
        h("br"),
        h("br"),
        result,
      ),
    ),
  );
}

function report(plan) {
  const edits = plan.edits ?? [];
  if (!edits.length)
    return h(
      "div",
      { class: "callout ok" },
      h("h2", {}, "No change"),
      h("p", {}, "Clients and data are not affected."),
    );
  return table({
    label: "Plan",
    rows: edits,
    columns: [
      { title: "Class", cell: (one) => badge(one.class, one.class === "safe" ? "ok" : "bad") },
      { title: "Edit", cell: (one) => one.what ?? one.text ?? "" },
      { title: "Why", cell: (one) => h("span", { class: "muted" }, one.why ?? "") },
    ],
  });
}

const BOX = 216;
const LINE = 18;
const GAP = 64;
/** Fields that a box lists: a wide collection stays small. */
const LISTED = 9;

function diagram(service) {
  const collections = service.collections;
  if (!collections.length) return empty("No collections", "Declare one in the schema file.");
  const level = new Map();
  const targets = (one) =>
    one.fields
      .map((field) => field.ref && (service.find(field.ref) ?? service.ofObject.get(field.ref)))
      .filter((other) => other && other !== one && collections.includes(other));
  const depth = (one, seen = new Set()) => {
    if (level.has(one)) return level.get(one);
    if (seen.has(one)) return 0;
    seen.add(one);
    const found = Math.max(-1, ...targets(one).map((other) => depth(other, seen))) + 1;
    level.set(one, found);
    return found;
  };
  collections.forEach((one) => depth(one));
  const places = new Map();
  const columns = [];
  // Collections that nothing connects fill the shortest column.
  for (const one of collections) {
    const alone =
      !targets(one).length && !collections.some((other) => targets(other).includes(one));
    const heights = [0, 1, 2].map((column) => columns[column] ?? 0);
    const column = alone ? heights.indexOf(Math.min(...heights)) : Math.min(level.get(one), 2);
    const fields = one.fields.filter((field) => !field.isList && field.name !== "object");
    const height = 40 + Math.min(fields.length, LISTED + 1) * LINE;
    places.set(one, { x: column * (BOX + GAP), y: columns[column] ?? 0, height, fields });
    columns[column] = (columns[column] ?? 0) + height + 32;
  }
  const width = Math.max(...[...places.values()].map((at) => at.x)) + BOX;
  const height = Math.max(...columns.filter(Boolean)) - 32;
  const arrows = collections.flatMap((one) =>
    one.fields.map((field, row) => {
      const target = field.ref && (service.find(field.ref) ?? service.ofObject.get(field.ref));
      const [from, to] = [places.get(one), places.get(target)];
      if (!from || !to) return null;
      const listed = from.fields.indexOf(field);
      const y1 = from.y + 40 + Math.min(Math.max(listed, 0), LISTED) * LINE + 4;
      const y2 = to.y + 16;
      const [x1, x2] = from.x > to.x ? [from.x, to.x + BOX] : [from.x + BOX, to.x + BOX];
      const bend = from.x > to.x ? [x1 - GAP / 2, x2 + GAP / 2] : [x1 + GAP / 2, x2 + GAP / 2];
      return s("path", {
        class: one.parents.at(-1) === target.name ? "parent" : "",
        d: `M${x1} ${y1}C${bend[0]} ${y1} ${bend[1]} ${y2} ${x2} ${y2}`,
      });
    }),
  );
  const boxes = collections.map((one) => {
    const { x, y, height: tall, fields } = places.get(one);
    const rows = fields
      .slice(0, LISTED)
      .map((field, row) => [
        s("text", { x: x + 12, y: y + 48 + row * LINE }, field.name.slice(0, 20)),
        s(
          "text",
          { class: "k", x: x + BOX - 12, y: y + 48 + row * LINE, "text-anchor": "end" },
          (field.ref ? `→ ${field.ref}` : field.format === "date-time" ? "time" : field.kind).slice(
            0,
            16,
          ),
        ),
      ]);
    const more =
      fields.length > LISTED
        ? s(
            "text",
            { class: "k", x: x + 12, y: y + 48 + LISTED * LINE },
            `and ${fields.length - LISTED} more`,
          )
        : null;
    return s(
      "g",
      {},
      s("rect", { class: "box", x, y, width: BOX, height: tall, rx: 6 }),
      s("rect", { class: "cap", x: x + 1, y: y + 1, width: BOX - 2, height: 30, rx: 5 }),
      s("text", { class: "t", x: x + 12, y: y + 21 }, one.name.slice(0, 28)),
      rows,
      more,
    );
  });
  const drawing = s(
    "svg",
    {
      class: "diagram",
      viewBox: `-1 -1 ${width + GAP / 2 + 2} ${height + 2}`,
      role: "img",
      "aria-label": `Diagram of ${collections.length} collections: ${collections.map((one) => one.name).join(", ")}`,
    },
    arrows,
    boxes,
  );
  drawing.style.maxWidth = `${width + GAP / 2}px`;
  drawing.style.minWidth = `${Math.min(width, 480)}px`;
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Diagram" },
    drawing,
  );
}
