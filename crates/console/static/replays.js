// Replays: past events that are sent to an endpoint again.
import { problem, sleep, tell, visible, write } from "/console/api.js";
import {
  badge,
  bones,
  dialog,
  empty,
  h,
  identifier,
  number,
  padded,
  replace,
  short,
  table,
  time,
} from "/console/dom.js";
import { form } from "/console/form.js";
import { service } from "/console/schema.js";
import { paged } from "/console/deliveries.js";

/** How often a running replay is read. */
const PROGRESS_MS = 700;
const enc = encodeURIComponent;

export async function newReplay(context, endpointId) {
  const { service } = context;
  const about = service.all.find((one) => one.name === "replays");
  const fields = form(service.document, about?.create?.schema ?? {});
  const input = fields.input("endpoint");
  if (input && endpointId) input.value = endpointId;
  const made = await dialog({
    title: "New replay",
    body: [
      h(
        "p",
        { class: "muted" },
        "Sends past events to an endpoint again. “dry_run” only counts them.",
      ),
      h("br"),
      fields.element,
    ],
    submit: "Start",
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      const options = { body, signal, what: "Replay live events?" };
      try {
        close((await write("POST", `${service.mount}/replays`, options)).data);
      } catch (error) {
        fields.show(error);
      }
    },
  });
  if (!made) return;
  location.hash === "#/webhooks/replays"
    ? dispatchEvent(new HashChangeEvent("hashchange"))
    : (location.hash = "#/webhooks/replays");
}

export async function replays(place, context, tools) {
  const { service, signal } = context;
  const result = h("div", { class: "card" }, bones(5));
  replace(
    tools,
    h(
      "button",
      { type: "button", class: "primary", onclick: () => newReplay(context) },
      "New replay",
    ),
  );
  replace(place, result);
  const cancel = async (one) => {
    try {
      await write("POST", `${service.mount}/replays/${enc(one.id)}/cancel`, {
        what: "Stop this live replay?",
      });
    } catch (error) {
      tell(error);
    }
  };
  try {
    for (;;) {
      let running = false;
      await paged(result, context, `${service.mount}/replays`, (rows) => {
        running = rows.some((one) => one.status === "pending" || one.status === "running");
        return rows.length
          ? table({ label: "Replays", rows, columns: columns(cancel) })
          : empty(
              "No replays yet",
              "A replay sends past events to an endpoint again, or to one that was created after them.",
              h(
                "button",
                { type: "button", class: "primary", onclick: () => newReplay(context) },
                "New replay",
              ),
            );
      });
      if (!running) return;
      await sleep(PROGRESS_MS, signal);
      await visible(signal);
    }
  } catch (error) {
    if (!signal.aborted) replace(result, padded(problem(error)));
  }
}

function columns(cancel) {
  return [
    { title: "Status", cell: (one) => [badge(one.status), one.dry_run ? " dry run" : ""] },
    { title: "Progress", cell: progress },
    {
      title: "Endpoint",
      cell: (one) =>
        h(
          "a",
          { href: `#/webhooks/endpoints/${enc(one.endpoint)}` },
          identifier(String(one.endpoint)),
        ),
    },
    { title: "Types", cell: (one) => short((one.types ?? ["all"]).join(", "), 40) },
    { title: "Started", cell: (one) => time(one.created_at) },
    {
      title: "",
      cell: (one) =>
        one.status === "pending" || one.status === "running"
          ? h("button", { type: "button", class: "small", onclick: () => cancel(one) }, "Stop")
          : (one.error ?? ""),
    },
  ];
}

function progress(one) {
  const bar = h("progress", {
    max: String(one.total || 1),
    value: one.status === "succeeded" && !one.total ? 1 : (one.done ?? 0),
    "aria-label": "Progress",
  });
  return h(
    "div",
    {},
    bar,
    h(
      "div",
      { class: "small muted" },
      `${number(one.done ?? 0)} of ${one.total == null ? "…" : number(one.total)}, ${number(one.succeeded ?? 0)} succeeded`,
    ),
  );
}
