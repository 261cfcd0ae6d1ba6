// Requests: the recent requests of the account, as the server keeps them.
import { get, Problem, problem } from "/console/api.js";
import {
  badge,
  bones,
  cell,
  code,
  dialog,
  empty,
  facts,
  h,
  head,
  milliseconds,
  padded,
  replace,
  select,
  table,
  time,
} from "/console/dom.js";

const PAGE = 50;

export async function show(place, context) {
  const { query, signal, service } = context;
  const path = `${service.mount}/requests`;
  const go = (changes) => {
    const next = new URLSearchParams(query);
    next.delete("after");
    for (const [name, value] of Object.entries(changes))
      value ? next.set(name, value) : next.delete(name);
    location.hash = `#/requests?${next}`;
  };
  const result = h("div", { class: "card" }, bones(6));
  replace(
    place,
    head(
      "Requests",
      [h("button", { type: "button", onclick: () => show(place, context) }, "Refresh")],
      "The newest requests of this account, without bodies. Every response carries its request id.",
    ),
    filterBar(query, go),
    result,
  );
  const asked = new URLSearchParams(query);
  asked.delete("id");
  asked.set("limit", PAGE);
  try {
    const page = query.get("id")
      ? await search(path, query.get("id"), signal)
      : await get(`${path}?${asked}`, { signal });
    replace(
      result,
      page.data.length
        ? table({
            label: "Requests",
            rows: page.data,
            open: (one) => () => details(one),
            columns: columns(),
          })
        : empty(
            "No requests",
            [...query.keys()].length
              ? "None of the kept requests matches."
              : "Requests with a key of this account appear here.",
            code(`curl ${location.origin}${service.mount}/account -u $KEY:`, "oneline"),
          ),
      page.pagination?.next_cursor &&
        h(
          "div",
          { class: "pager" },
          h("span", { class: "grow" }, "Newest first."),
          query.get("after") && h("button", { type: "button", onclick: () => go({}) }, "Newest"),
          h(
            "button",
            {
              type: "button",
              onclick: () => {
                const next = new URLSearchParams(query);
                next.set("after", page.pagination.next_cursor);
                location.hash = `#/requests?${next}`;
              },
            },
            "Older",
          ),
        ),
    );
  } catch (error) {
    if (signal.aborted) return;
    replace(
      result,
      error instanceof Problem && error.status === 404
        ? empty("Not on this server", "This server does not keep its recent requests.")
        : padded(problem(error)),
    );
  }
}

/** One request by its id, as a list. */
async function search(path, id, signal) {
  const found = await get(`${path}/${encodeURIComponent(id)}`, { signal }).catch((error) => {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  });
  return { data: found ? [found] : [] };
}

function details(one) {
  return dialog({
    title: one.id,
    wide: true,
    body: facts([
      ["Request", `${one.method} ${one.path}`],
      ["Route", one.route ?? "–"],
      ["Status", badge(one.status, one.status >= 400 ? "bad" : "ok")],
      [
        "Problem",
        one.code ? h("a", { href: `/errors#${encodeURIComponent(one.code)}` }, one.code) : "–",
      ],
      ["Message", one.message ?? "–"],
      ["Duration", milliseconds(one.duration_ms)],
      ["Time", [time(one.created_at), ` ${one.created_at}`]],
      ["Key", one.key ?? "–"],
      ["User", one.user ?? "–"],
      ["Version", one.version ?? "–"],
      [
        "Idempotent replay",
        one.idempotent_replayed
          ? "yes: the stored response was sent, nothing was done twice"
          : "no",
      ],
      ["Address", one.ip ?? "–"],
    ]),
  });
}

function columns() {
  return [
    {
      title: "Status",
      cell: (one) =>
        badge(one.status, one.status >= 500 ? "bad" : one.status >= 400 ? "warn" : "ok"),
    },
    {
      title: "Request",
      cell: (one) =>
        h(
          "button",
          { type: "button", class: "link row-link", onclick: () => details(one) },
          h("span", { class: "method" }, one.method),
          ` ${one.path}`,
        ),
    },
    { title: "Problem", cell: (one) => cell(one.code) },
    {
      title: "Replayed",
      cell: (one) => (one.idempotent_replayed ? badge("replayed", "accent") : ""),
    },
    { title: "Duration", num: true, cell: (one) => milliseconds(one.duration_ms) },
    { title: "Version", cell: (one) => cell(one.version, { format: "full" }) },
    { title: "Time", cell: (one) => time(one.created_at) },
  ];
}

function filterBar(query, go) {
  const status = select(
    [
      ["", "Any status"],
      ["2xx", "2xx"],
      ["4xx", "4xx: refused"],
      ["5xx", "5xx: failed"],
    ],
    query.get("status") ?? "",
    { "aria-label": "Status", onchange: () => go({ status: status.value }) },
  );
  const method = select(
    [["", "Any method"], "GET", "POST", "PATCH", "PUT", "DELETE"],
    query.get("method") ?? "",
    { "aria-label": "Method", onchange: () => go({ method: method.value }) },
  );
  const errorCode = h("input", {
    type: "search",
    placeholder: "Error code",
    "aria-label": "Error code",
    value: query.get("code") ?? "",
    onchange: () => go({ code: errorCode.value.trim() }),
  });
  const id = h("input", {
    type: "search",
    placeholder: "Request id, req_…",
    "aria-label": "Request id",
    value: query.get("id") ?? "",
    onchange: () => go({ id: id.value.trim() }),
  });
  return h("div", { class: "filters" }, status, method, errorCode, id);
}
