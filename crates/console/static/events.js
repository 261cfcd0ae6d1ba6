// Events: the log with a live tail, and the page of one event with what changed and its deliveries.
import { follow, get, Problem, problem, request, sleep, tell, write } from "/console/api.js";
import {
  badge,
  bones,
  card,
  code,
  crumbs,
  dialog,
  diff,
  empty,
  facts,
  h,
  head,
  identifier,
  json,
  labelled,
  padded,
  replace,
  select,
  short,
  table,
  time,
  toast,
  withoutTimes,
} from "/console/dom.js";

const PAGE = 30;
/** The tail reads the list at most this often, however many events there are. */
const TAIL_MS = 400;

export async function show(place, context) {
  if (context.segments[0]) return event(place, context, context.segments[0]);
  return list(place, context);
}

function here(query) {
  const text = query.toString();
  return `#/events${text ? `?${text}` : ""}`;
}

/** The link to the record of an event. */
export function subject(service, event) {
  const object = event.data?.object;
  const target = service.ofObject.get(object?.object);
  if (!object?.id || !target) return null;
  if (target.name === "webhook-endpoints")
    return `#/webhooks/endpoints/${encodeURIComponent(object.id)}`;
  if (target.name === "replays") return "#/webhooks/replays";
  if (!target.parents.length) return service.record(object.object, object.id);
  const parent = service.find(target.parents.at(-1));
  const id = parent && object[parent.object];
  if (target.parents.length !== 1 || typeof id !== "string") return null;
  return `#/records/${[parent.name, id, target.name, object.id].map((part) => encodeURIComponent(part)).join("/")}`;
}

async function list(place, context) {
  const { query, signal, service } = context;
  const go = (changes) => {
    const next = new URLSearchParams(query);
    next.delete("after");
    for (const [name, value] of Object.entries(changes))
      value ? next.set(name, value) : next.delete(name);
    location.hash = here(next);
  };
  const state = h(
    "span",
    { class: "row small muted", role: "status" },
    h("span", { class: "dot" }),
    "Connecting…",
  );
  const result = h("div", { class: "card" }, bones(4));
  replace(
    place,
    head("Events", [state], "Every change of a record is an event in the log."),
    filterBar(context, go),
    result,
  );
  const asked = new URLSearchParams(query);
  asked.set("limit", PAGE);
  const path = `${service.mount}/events?${asked}`;
  /** Draws the newest list; returns its position in the log. */
  const read = async () => {
    const answer = await request("GET", path, { signal });
    const { data: rows, pagination } = answer.data;
    const content = rows.length
      ? table({
          columns: columns(service),
          rows,
          label: "Events",
          open: (one) => `#/events/${encodeURIComponent(one.id)}`,
        })
      : nothing(query, service);
    const focused =
      result.contains(document.activeElement) && document.activeElement.getAttribute("href");
    replace(
      result,
      content,
      (rows.length > 0 || query.get("after")) && pager(query, pagination, go),
    );
    // Somebody who moves with the keyboard stays where they are.
    if (focused) result.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    return answer.headers.get("x-stream-position");
  };
  let position = null;
  try {
    position = await read();
  } catch (error) {
    if (!signal.aborted) replace(result, padded(problem(error)));
    replace(state);
    return;
  }
  if (query.get("after")) return replace(state);
  tail(context, state, position, read);
}

function filterBar({ query, service }, go) {
  const kind = h("input", {
    type: "search",
    list: "event-types",
    placeholder: "All types, or order.*",
    "aria-label": "Event type",
    value: query.get("type") ?? "",
    onchange: () => go({ type: kind.value.trim() }),
  });
  const resource = h("input", {
    type: "search",
    placeholder: "Id of a record",
    "aria-label": "Id of a record",
    value: query.get("resource") ?? "",
    onchange: () => go({ resource: resource.value.trim() }),
  });
  const delivery = select(
    [
      ["", "Any delivery"],
      ["pending", "Delivery pending"],
      ["succeeded", "Delivered"],
      ["failed", "Delivery failed"],
      ["skipped", "Skipped"],
    ],
    query.get("delivery") ?? "",
    { "aria-label": "Delivery", onchange: () => go({ delivery: delivery.value }) },
  );
  const types = service.eventTypes.map((type) => h("option", { value: type }));
  return h(
    "div",
    { class: "filters" },
    kind,
    resource,
    delivery,
    h("datalist", { id: "event-types" }, types),
  );
}

function columns(service) {
  return [
    { title: "Type", cell: (one) => one.type },
    {
      title: "Record",
      cell: (one) => {
        const id = one.data?.object?.id;
        const link = subject(service, one);
        return id == null
          ? "–"
          : link
            ? h("a", { href: link }, identifier(String(id)))
            : identifier(String(id));
      },
    },
    { title: "What changed", cell: (one) => h("span", { class: "muted" }, summary(one)) },
    { title: "Pending", num: true, cell: (one) => one.pending_webhooks ?? "–" },
    { title: "Time", cell: (one) => time(one.created) },
  ];
}

function pager(query, pagination, go) {
  const forward = h(
    "button",
    {
      type: "button",
      disabled: !pagination?.next_cursor,
      onclick: () => {
        const next = new URLSearchParams(query);
        next.set("after", pagination.next_cursor);
        location.hash = here(next);
      },
    },
    "Older",
  );
  return h(
    "div",
    { class: "pager" },
    h(
      "span",
      { class: "grow" },
      query.get("after") ? "An older page: the tail is off here." : "Newest first.",
    ),
    query.get("after") && h("button", { type: "button", onclick: () => go({}) }, "Newest"),
    forward,
  );
}

/** Reads the list again after each burst of events of the stream, one read at a time. */
function tail({ service, query, signal }, state, since, read) {
  let pending = null;
  const readOnce = () => (pending ??= read().finally(() => (pending = null)));
  let isStale = false;
  let waiting = false;
  const refresh = async () => {
    isStale = true;
    if (waiting) return;
    waiting = true;
    while (isStale && !signal.aborted) {
      await sleep(TAIL_MS, signal).catch(() => {});
      isStale = false;
      if (!document.hidden) await readOnce().catch(() => {});
    }
    waiting = false;
  };
  follow(service.stream, {
    since,
    signal,
    types: query.get("type") || null,
    // What happened while the server was away or the tab was hidden is in the list.
    resume: readOnce,
    onevent: refresh,
    onstate: (now) => {
      if (now instanceof Problem)
        return replace(
          state,
          h("span", { class: "dot" }),
          now.status === 403 ? "No live tail with this key" : "The tail is off",
        );
      const open = now === "open";
      replace(
        state,
        h("span", { class: `dot ${open ? "ok" : "warn"}` }),
        open ? "Live" : "Reconnecting…",
      );
    },
  });
}

function summary(event) {
  const previous = event.data?.previous_attributes;
  if (previous) return short(Object.keys(withoutTimes(previous)).join(", "), 80);
  return "";
}

function nothing(query, service) {
  if ([...query.keys()].length)
    return empty(
      "No event matches",
      "Try another type, or remove the filters.",
      h("a", { class: "button", href: "#/events" }, "All events"),
    );
  const first = service.collections.find((one) => one.create && !one.parents.length);
  return empty(
    "No events yet",
    "Create a record and its event appears here at once.",
    first &&
      h(
        "a",
        { class: "button primary", href: `#/records/${encodeURIComponent(first.name)}` },
        `Create one of ${first.name}`,
      ),
    code(`curl -N ${location.origin}${service.stream} -u $KEY:`, "oneline"),
  );
}

async function event(place, context, id) {
  const { service, signal } = context;
  const body = h("div", { class: "two" }, h("div", { class: "card" }, bones(2, 6)));
  replace(place, head(crumbs(["Events", "#/events"], id)), body);
  const found = await get(`${service.mount}/events/${encodeURIComponent(id)}`, { signal });
  const link = subject(service, found);
  const previous = found.data?.previous_attributes;
  const deliveries = h("div", {}, bones(3, 2));
  replace(
    body,
    h(
      "div",
      { class: "stack" },
      card(
        found.type,
        padded(
          facts([
            [
              "Record",
              link
                ? h("a", { class: "id", href: link }, found.data.object.id)
                : String(found.data?.object?.id ?? "–"),
            ],
            [
              "Time",
              [
                time(found.created),
                h(
                  "span",
                  { class: "muted small" },
                  ` ${new Date(found.created * 1000).toISOString()}`,
                ),
              ],
            ],
            ["Version", found.api_version ?? "–"],
            ["Caused by", found.actor?.user ?? found.actor?.key ?? "–"],
            [
              "Request",
              found.request?.id
                ? h(
                    "a",
                    { class: "id", href: `#/requests?id=${encodeURIComponent(found.request.id)}` },
                    found.request.id,
                  )
                : "–",
            ],
            ["Idempotency key", found.request?.idempotency_key ?? "–"],
          ]),
        ),
      ),
      previous && card("What changed", padded(diff(withoutTimes(previous), found.data.object))),
      card("Envelope", padded(json(found))),
    ),
    h(
      "div",
      { class: "stack" },
      card(
        "Deliveries",
        deliveries,
        h(
          "button",
          { type: "button", class: "small", onclick: () => replay(context, found) },
          "Replay…",
        ),
      ),
    ),
  );
  listDeliveries(context, deliveries, id);
}

async function listDeliveries({ service, signal }, place, id) {
  try {
    const page = await get(`${service.mount}/deliveries?event=${encodeURIComponent(id)}&limit=50`, {
      signal,
    });
    replace(
      place,
      page.data.length
        ? table({
            label: "Deliveries",
            rows: page.data,
            open: (one) => `#/webhooks/deliveries/${encodeURIComponent(one.id)}`,
            columns: [
              { title: "Status", cell: (one) => badge(one.status) },
              {
                title: "Endpoint",
                cell: (one) =>
                  h(
                    "a",
                    { href: `#/webhooks/endpoints/${encodeURIComponent(one.endpoint)}` },
                    identifier(String(one.endpoint)),
                  ),
              },
              { title: "Attempts", num: true, cell: (one) => one.attempts ?? 0 },
            ],
          })
        : padded(
            h(
              "p",
              { class: "muted" },
              "No endpoint subscribes to this event, or it has not been sent yet.",
            ),
          ),
    );
  } catch (error) {
    if (!signal.aborted) replace(place, padded(h("p", { class: "muted" }, error.message)));
  }
}

/** Sends the events of the same type and second to an endpoint again. */
async function replay({ service }, found) {
  let endpoints = [];
  try {
    endpoints = (await get(`${service.mount}/webhook-endpoints?limit=100`)).data;
  } catch (error) {
    return tell(error);
  }
  if (!endpoints.length)
    return tell(new Error("There is no endpoint yet. Create one under Webhooks."));
  const endpoint = select(
    endpoints.map((one) => [one.id, one.url]),
    endpoints[0].id,
  );
  const done = await dialog({
    title: "Replay this event",
    body: [
      h(
        "p",
        { class: "muted" },
        "Sends it to an endpoint again, with other events of this type of the same second.",
      ),
      h("br"),
      labelled("Endpoint", endpoint),
    ],
    submit: "Replay",
    onsubmit: async (close, signal) => {
      const since = new Date(found.created * 1000).toISOString();
      const until = new Date((found.created + 1) * 1000).toISOString();
      const body = { endpoint: endpoint.value, since, until, types: [found.type] };
      const options = { body, signal, what: "Replay live events?" };
      try {
        close((await write("POST", `${service.mount}/replays`, options)).data);
      } catch (error) {
        close(null);
        tell(error);
      }
    },
  });
  if (!done) return;
  toast("The replay has started.");
  location.hash = "#/webhooks/replays";
}
