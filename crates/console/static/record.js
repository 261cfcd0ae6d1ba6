// The page of a record: its fields, children, actions and events, and the form to edit it.
import { all, get, Problem, problem, request, session, tell, write } from "/console/api.js";
import {
  actor,
  badge,
  bones,
  card,
  cell,
  code,
  confirm,
  dialog,
  diff,
  facts,
  h,
  head,
  json,
  padded,
  replace,
  select,
  table,
  time,
  toast,
  withoutTimes,
} from "/console/dom.js";
import { form } from "/console/form.js";
import { apiPath, service } from "/console/schema.js";
import { columnsOf, formatOf, here, reference, suggestions, trail } from "/console/records.js";

/** The form of an edit. If the record changed meanwhile, what was typed stays and the difference is shown. */
async function edit(context, collection, path, answer) {
  const { document } = context.service;
  let { data: before, etag } = answer;
  const fields = form(document, collection.update.schema, before, {
    suggest: suggestions(context, collection),
  });
  const conflict = h("div", { class: "callout warn", role: "alert", hidden: true });
  const saved = await dialog({
    title: `Edit ${before.id}`,
    body: [conflict, fields.element],
    submit: "Save",
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      if (!Object.keys(body).length) return close(before);
      const options = { body, signal, headers: { "If-Match": etag } };
      options.what = `Change live ${before.id}?`;
      try {
        close((await write("PATCH", path, options)).data);
      } catch (error) {
        if (error instanceof Problem && error.status === 412) {
          const newest = await request("GET", path, { signal }).catch((failed) => failed);
          if (newest instanceof Problem) fields.show(newest);
          else if (!(newest instanceof Error)) {
            meanwhile(conflict, before, newest.data);
            ({ etag } = newest);
          }
        } else fields.show(error);
      }
    },
  });
  return saved;
}

function meanwhile(place, before, newest) {
  const names = Object.keys(newest).filter(
    (name) =>
      name !== "updated_at" && JSON.stringify(newest[name]) !== JSON.stringify(before[name]),
  );
  replace(
    place,
    h("h2", {}, "Changed meanwhile"),
    h(
      "p",
      {},
      "Somebody changed this record after you opened it. What you typed is still here. Save again to write it over the newest version.",
    ),
    diff(Object.fromEntries(names.map((name) => [name, before[name] ?? null])), newest),
  );
  place.hidden = false;
}

// The page of a record

export async function record(place, context, collection) {
  const { segments, query, signal, service } = context;
  const path = apiPath(service.mount, segments);
  const version = query.get("as");
  const title = trail(segments);
  const main = h("div", { class: "stack" }, h("div", { class: "card" }, bones(2, 6)));
  const beside = h("div", { class: "stack" });
  const tools = h("div", { class: "row" });
  replace(place, head(title, tools), h("div", { class: "two" }, main, beside));
  const events = timeline(context, segments.at(-1));
  let answer;
  try {
    answer = await request("GET", path, { signal, version });
  } catch (error) {
    if (signal.aborted) return;
    replace(main, problem(error));
    replace(beside, events);
    return;
  }
  const again = () => signal.aborted || record(place, context, collection);
  replace(tools, buttons(context, collection, path, answer, again));
  replace(
    main,
    card(
      "Fields",
      padded(
        facts(
          collection.fields
            .filter((field) => field.name in answer.data && !field.isList)
            .map((field) => [
              field.name,
              fact(context, collection, field, answer.data[field.name]),
            ]),
        ),
      ),
      versionPicker(context),
    ),
    unknownFields(collection, answer.data),
    collection.children.map((child) => childList(context, child)),
    card(
      "JSON",
      padded(json(answer.data), h("div", { class: "small muted" }, `ETag ${answer.etag ?? "–"}`)),
    ),
  );
  replace(
    beside,
    actions(context, collection, path, answer, again),
    events,
    card(
      "From a terminal",
      padded(
        code(
          `curl ${location.origin}${path} -u $KEY:${version ? ` \\\n  -H 'Restive-Version: ${version}'` : ""}`,
        ),
      ),
    ),
  );
}

function fact(context, collection, field, value) {
  if (value !== null && typeof value === "object") return json(value);
  const link = reference(context.service, field, value, context.segments);
  const shown = cell(value, {
    link,
    format:
      formatOf(collection, field) === "state"
        ? "state"
        : field.format === "date-time"
          ? "date-time"
          : "full",
  });
  return field.format === "date-time" && value
    ? [shown, h("span", { class: "muted small" }, ` ${value}`)]
    : shown;
}

/** Members that the document does not name, as of a newer server. */
function unknownFields(collection, data) {
  const known = new Set(collection.fields.map((field) => field.name));
  const others = Object.keys(data).filter((name) => !known.has(name));
  return others.length
    ? card("Other members", padded(facts(others.map((name) => [name, cell(data[name])]))))
    : null;
}

function versionPicker(context) {
  const { service, query, segments } = context;
  if (service.versions.length < 2) return null;
  const picker = select(
    [["", "as the newest version"], ...service.versions.map((one) => [one, `as version ${one}`])],
    query.get("as") ?? "",
    {
      "aria-label": "API version",
      onchange: () => {
        const next = new URLSearchParams(query);
        picker.value ? next.set("as", picker.value) : next.delete("as");
        location.hash = here(segments, next);
      },
    },
  );
  picker.style.width = "auto";
  return picker;
}

function buttons(context, collection, path, answer, again) {
  const change = async () => {
    // A write needs the newest shape: the form is made from the newest document.
    const fresh = context.query.get("as") ? await request("GET", path) : answer;
    const saved = await edit(context, collection, path, fresh);
    if (saved) {
      toast("Saved.");
      again();
    }
  };
  const remove = async () => {
    if (
      !session.live &&
      !(await confirm(
        `Delete ${answer.data.id}?`,
        "Its children are deleted too. The event log keeps what it was.",
        { word: "Delete", danger: true },
      ))
    )
      return;
    try {
      await write("DELETE", path, {
        headers: answer.etag ? { "If-Match": answer.etag } : {},
        what: `Delete live ${answer.data.id}?`,
      });
      toast(`Deleted ${answer.data.id}.`);
      if (context.signal.aborted) return;
      location.hash = here(context.segments.slice(0, -1), new URLSearchParams());
    } catch (error) {
      tell(error, again);
    }
  };
  return [
    collection.update && h("button", { type: "button", onclick: change }, "Edit"),
    collection.canDelete &&
      h("button", { type: "button", class: "danger", onclick: remove }, "Delete"),
  ];
}

function actions(context, collection, path, answer, again) {
  if (!collection.actions.length) return null;
  const state = collection.state ? answer.data[collection.state] : null;
  const possible = collection.actions.filter(
    (action) => !action.from || state == null || action.from.includes(state),
  );
  const run = (action) => act(context, action, path, answer, again);
  const others = collection.actions.filter((action) => !possible.includes(action));
  return card(
    "Actions",
    padded(
      state != null && h("p", { class: "row" }, "State ", badge(state)),
      possible.length
        ? h(
            "div",
            { class: "row" },
            possible.map((action) =>
              h(
                "button",
                { type: "button", title: action.description, onclick: () => run(action) },
                action.name,
              ),
            ),
          )
        : h("p", { class: "muted" }, "No action is possible in this state."),
      others.length > 0 &&
        h(
          "p",
          { class: "small muted" },
          "In other states: ",
          others.map((action) => `${action.name} (from ${action.from.join(", ")})`).join("; "),
        ),
    ),
  );
}

async function act(context, action, path, answer, again) {
  const fields = form(context.service.document, action.schema ?? {});
  const done = await dialog({
    title: action.name,
    body: [h("p", { class: "muted" }, action.description), h("br"), fields.element],
    submit: action.name,
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      const options = {
        body: Object.keys(body).length ? body : undefined,
        headers: answer.etag ? { "If-Match": answer.etag } : {},
        signal,
        what: `Run “${action.name}” on live data?`,
      };
      try {
        close((await write("POST", `${path}/${encodeURIComponent(action.name)}`, options)).data);
      } catch (error) {
        if (error instanceof Problem && error.status === 412) {
          close(null);
          tell(error, again);
        } else fields.show(error);
      }
    },
  });
  if (!done) return;
  toast(`${action.name}: done.`);
  again();
}

function childList(context, name) {
  const { segments, service, signal } = context;
  const child = service.find(name);
  if (!child) return null;
  const place = h("div", {}, bones(4, 3));
  const path = apiPath(service.mount, [...segments, name]);
  get(`${path}?limit=5`, { signal })
    .then((page) => {
      const parent = service.find(segments.at(-2));
      const shown = columnsOf(child, new URLSearchParams())
        .filter((field) => !parent || field.name !== parent.object)
        .slice(0, 5);
      const columns = shown.map((field) => ({
        title: field.name,
        cell: (row) => cell(row[field.name], { format: formatOf(child, field) }),
      }));
      replace(
        place,
        page.data.length
          ? table({
              columns,
              rows: page.data,
              label: name,
              open: (row) => here([...segments, name, String(row.id)], new URLSearchParams()),
            })
          : padded(h("p", { class: "muted" }, `No ${name} yet.`)),
      );
    })
    .catch((error) => !signal.aborted && replace(place, padded(problem(error))));
  const link = h(
    "a",
    { href: here([...segments, name], new URLSearchParams()) },
    "All, or a new one",
  );
  return card(name, place, link);
}

function timeline(context, id) {
  const { service, signal } = context;
  const place = h("ol", { class: "timeline" }, h("li", {}, h("span", { class: "bone" })));
  all(`${service.mount}/events?resource=${encodeURIComponent(id)}`, { signal }, 100)
    .then((events) => {
      replace(
        place,
        events.map((event) =>
          h(
            "li",
            {},
            h("a", { href: `#/events/${encodeURIComponent(event.id)}` }, event.type),
            h("div", { class: "small muted" }, time(event.created), actor(event)),
            event.data?.previous_attributes &&
              diff(withoutTimes(event.data.previous_attributes), event.data.object),
          ),
        ),
      );
      if (!events.length)
        replace(
          place,
          h("li", {}, h("span", { class: "muted" }, "No events are kept of this record.")),
        );
    })
    .catch(
      (error) =>
        !signal.aborted &&
        replace(
          place,
          h(
            "li",
            {},
            h("span", { class: "muted" }, error instanceof Problem ? error.message : String(error)),
          ),
        ),
    );
  return card("Timeline", padded(place));
}
