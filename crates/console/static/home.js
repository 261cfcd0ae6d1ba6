// Home: what happened in the last hour, from /v1/stats, and the first steps of an empty service.
import { get, Problem, sleep } from "/console/api.js";
import {
  ago,
  badge,
  bars,
  bones,
  card,
  code,
  empty,
  facts,
  h,
  head,
  identifier,
  lines,
  meter,
  milliseconds,
  number,
  padded,
  replace,
  table,
  time,
} from "/console/dom.js";

/** How often the figures are read while the page is visible. */
const REFRESH_MS = 10_000;

export async function show(place, context) {
  const { service, signal } = context;
  const body = h(
    "div",
    { class: "grid" },
    ["Requests", "Latency", "Commits", "Deliveries"].map((title) =>
      h("section", { class: "card tile w3" }, h("h2", {}, title)),
    ),
    h("section", { class: "card w8" }, bones(4, 6)),
    h("section", { class: "card w4" }, bones(2, 6)),
  );
  const newest = h("div", {});
  const status = h("span", { class: "row small muted" });
  replace(place, head("Home", [status]), body);
  started(context, newest);
  for (;;) {
    const health = await get("/health", { signal }).catch((error) => error);
    if (signal.aborted) return;
    replace(
      status,
      h("span", { class: `dot ${health.status === "ok" ? "ok" : "warn"}` }),
      health.status === "ok" ? "Healthy" : String(health.reason ?? health.status ?? "Not healthy"),
      health.position != null && h("span", {}, `position ${number(health.position)}`),
    );
    const stats = await get(`${service.mount}/stats`, { signal }).catch((error) => error);
    if (signal.aborted) return;
    if (stats instanceof Problem) replace(body, missing(stats), h("div", { class: "w12" }, newest));
    else if (stats.points) draw(body, stats, newest);
    do await sleep(REFRESH_MS, signal);
    while (document.hidden);
  }
}

function missing(error) {
  const text =
    error.status === 403
      ? `${error.message} Everything else that this key allows is in the menu.`
      : error.status === 404
        ? "This server does not report statistics."
        : error.message;
  return h(
    "div",
    { class: "card w12" },
    empty("No figures", text, h("a", { class: "button", href: "#/records" }, "Records")),
  );
}

function tile(title, figure, unit, chart, below) {
  return h(
    "section",
    { class: "card tile w3" },
    h("h2", {}, title),
    h("div", { class: "figure" }, figure, unit && h("small", {}, unit)),
    chart,
    below,
  );
}

const sum = (points, name) => points.reduce((total, point) => total + (point[name] ?? 0), 0);

function draw(place, stats, newest) {
  replace(
    place,
    traffic(stats.points),
    deliveries(stats.deliveries ?? {}),
    problems(stats, newest),
    beside(stats),
  );
}

/** Requests, latency and commits of the last hour. */
function traffic(points) {
  const hour = h("div", { class: "axis" }, h("span", {}, "1 h ago"), h("span", {}, "now"));
  const last = points.filter((point) => point.requests > 0).at(-1) ?? {};
  const requests = sum(points, "requests");
  return [
    tile(
      "Requests",
      number(requests),
      "last hour",
      bars(
        points.map((point) => [
          Math.max(0, point.requests - point.client_errors - point.server_errors),
          point.client_errors,
          point.server_errors,
        ]),
        { label: `${number(requests)} requests in the last hour` },
      ),
      hour,
    ),
    tile(
      "Latency",
      milliseconds(last.p50_ms),
      last.p99_ms == null ? "" : `p99 ${milliseconds(last.p99_ms)}`,
      lines([points.map((point) => point.p50_ms), points.map((point) => point.p99_ms)], {
        label: "Median and 99th percentile of the last hour",
      }),
      hour.cloneNode(true),
    ),
    tile(
      "Commits",
      number(sum(points, "commits")),
      "last hour",
      lines([points.map((point) => point.commits ?? 0)], { label: "Commits in the last hour" }),
      hour.cloneNode(true),
    ),
  ];
}

/** Deliveries that wait, and how many of the others arrived. */
function deliveries(delivered) {
  return tile(
    "Deliveries",
    number(delivered.pending ?? 0),
    "waiting",
    meter(
      [
        { value: delivered.delivered ?? 0, kind: "f2" },
        { value: delivered.failed ?? 0, kind: "f3" },
      ],
      (delivered.delivered ?? 0) + (delivered.failed ?? 0),
      "Delivered and failed",
    ),
    h(
      "div",
      { class: "axis" },
      h("span", {}, `${number(delivered.delivered ?? 0)} delivered`),
      h(
        "span",
        {},
        delivered.oldest_pending_at
          ? `oldest ${ago(delivered.oldest_pending_at)}`
          : `${number(delivered.failed ?? 0)} failed`,
      ),
    ),
  );
}

/** Errors by code and route, and the newest events below. */
function problems(stats, newest) {
  const [requests, ...failed] = ["requests", "client_errors", "server_errors"].map((name) =>
    sum(stats.points, name),
  );
  const errors = stats.errors ?? [];
  const rate = requests ? `${((100 * (failed[0] + failed[1])) / requests).toFixed(1)} %` : "0 %";
  return h(
    "div",
    { class: "w8 stack" },
    card(
      "Errors by code and route",
      errors.length
        ? table({
            label: "Errors",
            rows: errors,
            open: (one) => `#/requests?code=${encodeURIComponent(one.code)}`,
            columns: [
              { title: "Code", cell: (one) => one.code },
              { title: "Route", cell: (one) => h("span", { class: "mono" }, one.route) },
              { title: "Count", num: true, cell: (one) => number(one.count) },
              { title: "Newest request", cell: (one) => lastRequest(one.last_request) },
            ],
          })
        : empty(
            "No errors in the last hour",
            "Refused and failed requests appear here, grouped by their code and route.",
          ),
      h("span", { class: "small muted" }, `${rate} of all requests`),
    ),
    newest,
  );
}

/** Open connections and versions in use. */
function beside(stats) {
  const versions = stats.versions ?? [];
  const used = versions.reduce((total, one) => total + one.requests, 0);
  const open = stats.connections ?? {};
  return h(
    "div",
    { class: "w4 stack" },
    card(
      "Open connections",
      padded(
        facts([
          ["Server-sent events", number(open.sse ?? 0)],
          ["WebSocket", number(open.websocket ?? 0)],
          ["Long polls", number(open.poll ?? 0)],
        ]),
      ),
      h("a", { href: "#/live" }, "Live"),
    ),
    card(
      "Versions in use",
      padded(
        versions.length
          ? versions.map((one) =>
              h(
                "div",
                { class: "field" },
                h(
                  "div",
                  { class: "row between" },
                  one.version,
                  h("span", { class: "muted" }, number(one.requests)),
                ),
                meter(
                  [{ value: one.requests, kind: "f1" }],
                  used,
                  `${one.version}: ${number(one.requests)} requests`,
                ),
              ),
            )
          : h("p", { class: "muted" }, "No requests yet."),
      ),
      h("a", { href: "#/versions" }, "Versions"),
    ),
  );
}

function lastRequest(value) {
  const id = value?.id ?? value;
  return typeof id === "string"
    ? h(
        "a",
        { class: "id", title: id, href: `#/requests?id=${encodeURIComponent(id)}` },
        `…${id.slice(-6)}`,
      )
    : "–";
}

/** The first steps, until there are events. */
async function started({ service, signal }, place) {
  const events = await get(`${service.mount}/events?limit=8`, { signal }).catch(() => null);
  if (!events || signal.aborted) return;
  if (events.data.length) {
    return replace(
      place,
      card(
        "Newest events",
        table({
          label: "Newest events",
          rows: events.data,
          open: (one) => `#/events/${encodeURIComponent(one.id)}`,
          columns: [
            { title: "Type", cell: (one) => one.type },
            { title: "Record", cell: (one) => identifier(String(one.data?.object?.id ?? "–")) },
            {
              title: "Waiting",
              cell: (one) =>
                one.pending_webhooks ? badge(`${one.pending_webhooks} pending`, "warn") : "–",
            },
            { title: "Time", cell: (one) => time(one.created) },
          ],
        }),
        h("a", { href: "#/events" }, "All events"),
      ),
    );
  }
  const first = service.collections.find((one) => one.create && !one.parents.length);
  const steps = [
    [
      first ? `Create a record in ${first.name}` : "Create a record",
      "Every write is one durable commit with its event.",
      first && `#/records/${encodeURIComponent(first.name)}`,
    ],
    ["See its event", "The log shows what changed and who did it.", "#/events"],
    [
      "Add a webhook endpoint",
      "Each event is signed and sent to the endpoints that want it.",
      "#/webhooks/endpoints",
    ],
    ["Try a live channel", "Server-sent events and WebSockets carry the same events.", "#/live"],
  ];
  replace(
    place,
    card(
      "First steps",
      padded(
        h(
          "ol",
          { class: "timeline" },
          steps.map(([title, text, link]) =>
            h(
              "li",
              {},
              link ? h("a", { href: link }, title) : title,
              h("div", { class: "muted" }, text),
            ),
          ),
        ),
        first && code(`curl ${location.origin}${service.mount}/${first.name} -u $KEY:`, "oneline"),
      ),
    ),
  );
}
