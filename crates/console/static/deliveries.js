// Deliveries: the list, and the page of one with its attempts.
import { get, problem, sleep, tell, write } from "/console/api.js";
import {
  badge,
  bones,
  card,
  clock,
  code,
  crumbs,
  empty,
  facts,
  h,
  head,
  identifier,
  instant,
  json,
  meter,
  milliseconds,
  padded,
  replace,
  select,
  table,
  time,
  toast,
} from "/console/dom.js";
import { form } from "/console/form.js";
import { service } from "/console/schema.js";

const PAGE = 25;
/** How often and how many times a delivery is read until its new attempt is there. */
const READ_MS = 200;
const MAX_READS = 25;
const enc = encodeURIComponent;

/** A page of a list, with the buttons to newer and older ones. */
export async function paged(place, context, path, make) {
  const { query, signal, segments } = context;
  const asked = new URLSearchParams(query);
  asked.set("limit", PAGE);
  const page = await get(`${path}?${asked}`, { signal });
  const to = (after) => {
    const next = new URLSearchParams(query);
    after ? next.set("after", after) : next.delete("after");
    location.hash = `#/webhooks/${segments[0] ?? "endpoints"}?${next}`;
  };
  replace(
    place,
    make(page.data),
    (page.pagination?.next_cursor || query.get("after")) &&
      h(
        "div",
        { class: "pager" },
        h("span", { class: "grow" }, "Newest first."),
        query.get("after") && h("button", { type: "button", onclick: () => to(null) }, "Newest"),
        h(
          "button",
          {
            type: "button",
            disabled: !page.pagination?.next_cursor,
            onclick: () => to(page.pagination.next_cursor),
          },
          "Older",
        ),
      ),
  );
}

export function deliveryTable(rows, withEndpoint = true) {
  return table({
    label: "Deliveries",
    rows,
    open: (one) => `#/webhooks/deliveries/${enc(one.id)}`,
    columns: [
      { title: "Status", cell: (one) => badge(one.status) },
      {
        title: "Event",
        cell: (one) =>
          one.event
            ? h(
                "a",
                { href: `#/events/${enc(one.event)}` },
                one.event_type ?? identifier(one.event),
              )
            : "–",
      },
      ...(withEndpoint
        ? [
            {
              title: "Endpoint",
              cell: (one) =>
                h(
                  "a",
                  { href: `#/webhooks/endpoints/${enc(one.endpoint)}` },
                  identifier(String(one.endpoint)),
                ),
            },
          ]
        : []),
      { title: "Attempts", num: true, cell: (one) => one.attempts ?? 0 },
      { title: "Next attempt", cell: (one) => next(one.next_attempt_at) },
      { title: "Created", cell: (one) => time(one.created_at) },
    ],
  });
}

export async function deliveries(place, context) {
  const { query, service } = context;
  const status = select(
    [["", "Any status"], "pending", "succeeded", "failed", "skipped"],
    query.get("status") ?? "",
    { "aria-label": "Status", onchange: () => to({ status: status.value }) },
  );
  const to = (changes) => {
    const next = new URLSearchParams(query);
    next.delete("after");
    for (const [name, value] of Object.entries(changes))
      value ? next.set(name, value) : next.delete(name);
    location.hash = `#/webhooks/deliveries?${next}`;
  };
  const chips = ["endpoint", "event"]
    .filter((name) => query.get(name))
    .map((name) =>
      h(
        "span",
        { class: "chip" },
        `${name} `,
        h("b", {}, query.get(name)),
        h(
          "button",
          {
            type: "button",
            class: "icon small",
            "aria-label": `Remove the filter ${name}`,
            onclick: () => to({ [name]: null }),
          },
          "✕",
        ),
      ),
    );
  const result = h("div", { class: "card" }, bones(5));
  replace(place, h("div", { class: "filters" }, status, chips), result);
  try {
    await paged(result, context, `${service.mount}/deliveries`, (rows) =>
      rows.length
        ? deliveryTable(rows)
        : empty(
            "No deliveries",
            [...query.keys()].length
              ? "None matches."
              : "A delivery appears here when an event is sent to an endpoint.",
            h("a", { class: "button", href: "#/webhooks/endpoints" }, "Endpoints"),
          ),
    );
  } catch (error) {
    if (!context.signal.aborted) replace(result, padded(problem(error)));
  }
}

export async function delivery(place, context, id) {
  const { service, signal } = context;
  const path = `${service.mount}/deliveries/${enc(id)}`;
  const tools = h("div", { class: "row" });
  const body = h("div", { class: "two" }, h("div", { class: "card" }, bones(3, 5)));
  replace(
    place,
    head(crumbs(["Webhooks", "#/webhooks"], ["Deliveries", "#/webhooks/deliveries"], id), tools),
    body,
  );
  const again = () => signal.aborted || delivery(place, context, id);
  const [one, attempts] = await Promise.all([
    get(path, { signal }),
    get(`${path}/attempts?limit=100`, { signal }),
  ]);
  replace(
    tools,
    h(
      "button",
      {
        type: "button",
        class: "primary",
        onclick: async (event) => {
          event.target.disabled = true;
          try {
            await write("POST", `${path}/retry`, { what: "Send this live delivery again?" });
            toast("Sent again.");
            await attempted(path, one.attempts ?? 0, signal);
          } catch (error) {
            await tell(error);
          }
          again();
        },
      },
      "Send again",
    ),
  );
  const event = one.event
    ? await get(`${service.mount}/events/${enc(one.event)}`, { signal }).catch(() => null)
    : null;
  replace(
    body,
    h(
      "div",
      { class: "stack" },
      attemptCards(one, attempts.data),
      event &&
        card(
          "Request body",
          padded(
            h(
              "p",
              { class: "small muted" },
              "The event in its current form; an endpoint with another version or thin payloads gets less.",
            ),
            json(event),
          ),
        ),
    ),
    aboutDelivery(one, event),
  );
}

function attemptCards(one, attempts) {
  return [
    attempts.map((made) =>
      card(
        `Attempt ${made.number}`,
        padded(attempt(made)),
        badge(
          made.status ?? made.error ?? "pending",
          made.status >= 200 && made.status < 300 ? "ok" : "bad",
        ),
      ),
    ),
    !attempts.length &&
      card(
        "Attempts",
        padded(
          h(
            "p",
            { class: "muted" },
            one.status === "skipped"
              ? "This delivery was skipped: a filter or the status of the endpoint prevented it."
              : "No attempt was made yet.",
          ),
        ),
      ),
  ];
}

function aboutDelivery(one, event) {
  return card(
    "Delivery",
    padded(
      facts([
        ["Status", badge(one.status)],
        [
          "Event",
          one.event
            ? h(
                "a",
                { href: `#/events/${enc(one.event)}` },
                one.event_type ?? event?.type ?? one.event,
              )
            : "–",
        ],
        [
          "Endpoint",
          h(
            "a",
            { href: `#/webhooks/endpoints/${enc(one.endpoint)}` },
            identifier(String(one.endpoint)),
          ),
        ],
        ["Attempts", String(one.attempts ?? 0)],
        ["Next attempt", next(one.next_attempt_at)],
        ["Created", time(one.created_at)],
      ]),
    ),
  );
}

/** Waits until there is one more attempt, for a while. */
async function attempted(path, before, signal) {
  for (let reads = 0; reads < MAX_READS; reads += 1) {
    const now = await get(path, { signal });
    if ((now.attempts ?? 0) > before) return;
    await sleep(READ_MS, signal);
  }
}

/** One attempt: where its time went, the answer, the error. */
export function attempt(made) {
  const latency = made.latency ?? {};
  const stages = [
    ["DNS", latency.dns_ms, "f1"],
    ["Connect", latency.connect_ms, "f2"],
    ["TLS", latency.tls_ms, "f3"],
    [
      "First byte",
      latency.first_byte_ms == null
        ? null
        : latency.first_byte_ms -
          (latency.dns_ms ?? 0) -
          (latency.connect_ms ?? 0) -
          (latency.tls_ms ?? 0),
      "f4",
    ],
    ["Body", latency.first_byte_ms == null ? null : latency.total_ms - latency.first_byte_ms, "f5"],
  ].map(([name, value, kind]) => ({
    name,
    value: value == null ? null : Math.max(0, value),
    kind,
  }));
  return h(
    "div",
    { class: "stack" },
    made.error && h("div", { class: "callout bad" }, `${made.error}: ${made.error_message ?? ""}`),
    latency.total_ms != null &&
      h(
        "div",
        {},
        meter(
          stages.map(({ value, kind }) => ({ value: value ?? 0, kind })),
          latency.total_ms,
          "Where the time went",
        ),
        h(
          "div",
          { class: "legend", role: "list" },
          stages.map(({ name, value, kind }) =>
            h(
              "span",
              { role: "listitem" },
              h("i", { class: kind }),
              `${name} ${milliseconds(value)}`,
            ),
          ),
          h("b", { role: "listitem" }, `Total ${milliseconds(latency.total_ms)}`),
        ),
      ),
    facts(
      [
        ["Answer", made.status ?? "none"],
        ["Address", made.remote_address ?? "–"],
        ["Reason", made.trigger ?? "–"],
        ["Time", time(made.created_at)],
        made.next_attempt_at && [
          "Next attempt",
          [
            time(made.next_attempt_at),
            made.next_attempt_reason ? ` (${made.next_attempt_reason})` : "",
          ],
        ],
      ].filter(Boolean),
    ),
    made.response_headers &&
      h("details", {}, h("summary", {}, "Response headers"), json(made.response_headers)),
    made.response_body &&
      h("details", { open: true }, h("summary", {}, "Response body"), code(made.response_body)),
  );
}

/** When the next attempt is due. Behind other deliveries of a failing endpoint it waits longer. */
function next(value) {
  const passed = value && instant(value) < Date.now() + clock.skew;
  return passed ? h("span", { title: value }, "due, waits for its turn") : time(value);
}
