// Webhooks: endpoints, deliveries with their attempts, replays, and the signature doctor.
import { get, Problem, problem, request, session, tell, write } from "/console/api.js";
import {
  badge,
  bones,
  card,
  cell,
  code,
  confirm,
  crumbs,
  dialog,
  empty,
  facts,
  h,
  head,
  labelled,
  padded,
  replace,
  select,
  short,
  showSecret,
  table,
  time,
  toast,
} from "/console/dom.js";
import { form } from "/console/form.js";
import { service } from "/console/schema.js";
import { attempt, deliveries, delivery, deliveryTable, paged } from "/console/deliveries.js";
import { newReplay, replays } from "/console/replays.js";

const TABS = [
  ["endpoints", "Endpoints"],
  ["deliveries", "Deliveries"],
  ["replays", "Replays"],
  ["doctor", "Signature doctor"],
];

export async function show(place, context) {
  const [tab = "endpoints", id] = context.segments;
  if (tab === "endpoints" && id) return endpoint(place, context, id);
  if (tab === "deliveries" && id) return delivery(place, context, id);
  const tools = h("div", { class: "row" });
  const body = h("div", {});
  replace(
    place,
    head("Webhooks", tools, "Signed events, sent to the endpoints of your subscribers."),
    h(
      "nav",
      { class: "tabs", "aria-label": "Webhooks" },
      TABS.map(([key, title]) =>
        h("a", { href: `#/webhooks/${key}`, "aria-current": key === tab ? "page" : null }, title),
      ),
    ),
    body,
  );
  const doctor = async (part) => (await import("/console/doctor.js")).show(part);
  const screens = { endpoints, deliveries, replays, doctor };
  await (screens[tab] ?? endpoints)(body, context, tools);
}

const enc = encodeURIComponent;

// Endpoints

async function endpoints(place, context, tools) {
  const { service } = context;
  const result = h("div", { class: "card" }, bones(5));
  replace(
    tools,
    h(
      "button",
      { type: "button", class: "primary", onclick: () => newEndpoint(context) },
      "New endpoint",
    ),
  );
  replace(place, result);
  try {
    await paged(result, context, `${service.mount}/webhook-endpoints`, (rows) =>
      rows.length
        ? table({
            label: "Endpoints",
            rows,
            open: (one) => `#/webhooks/endpoints/${enc(one.id)}`,
            columns: [
              { title: "URL", cell: (one) => short(one.url, 60) },
              { title: "Status", cell: (one) => health(one) },
              { title: "Events", cell: (one) => short((one.enabled_events ?? []).join(", "), 40) },
              { title: "Description", cell: (one) => cell(one.description) },
              { title: "Created", cell: (one) => time(one.created_at) },
            ],
          })
        : empty(
            "No endpoints yet",
            "Add the address of a receiver. The secret that signs its events is shown once.",
            h(
              "button",
              { type: "button", class: "primary", onclick: () => newEndpoint(context) },
              "New endpoint",
            ),
            code(
              "export RESTIVE_RECEIVE_SECRET=whsec_…\nrestive receive --listen 127.0.0.1:8090 --exec cat",
            ),
          ),
    );
  } catch (error) {
    if (!context.signal.aborted) replace(result, padded(problem(error)));
  }
}

function health(one) {
  if (one.status !== "enabled") return badge("disabled", "bad");
  return one.failing_since ? badge("failing", "warn") : badge("enabled", "ok");
}

async function newEndpoint(context) {
  const { service } = context;
  const about = service.all.find((one) => one.name === "webhook-endpoints");
  const fields = form(
    service.document,
    about?.create?.schema ?? { properties: { url: { type: "string" } }, required: ["url"] },
    undefined,
    {
      only: [
        "url",
        "enabled_events",
        "description",
        "filter",
        "payload",
        "api_version",
        "ordering",
        "rate_limit",
      ].filter((name) => !about || name in about.create.schema.properties),
    },
  );
  const made = await dialog({
    title: "New endpoint",
    body: fields.element,
    submit: "Create",
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      const options = { body, signal, what: "Create a live endpoint?" };
      try {
        close((await write("POST", `${service.mount}/webhook-endpoints`, options)).data);
      } catch (error) {
        fields.show(error);
      }
    },
  });
  if (!made) return;
  await signingSecret(made);
  location.hash = `#/webhooks/endpoints/${enc(made.id)}`;
}

function signingSecret(made) {
  return showSecret("The signing secret", made.secret, "Rotate the secret to get another one.");
}

async function endpoint(place, context, id) {
  const { service, signal } = context;
  const path = `${service.mount}/webhook-endpoints/${enc(id)}`;
  const tools = h("div", { class: "row" });
  const body = h("div", { class: "stack" }, h("div", { class: "card" }, bones(2, 6)));
  replace(
    place,
    head(crumbs(["Webhooks", "#/webhooks"], ["Endpoints", "#/webhooks/endpoints"], id), tools),
    body,
  );
  const again = () => signal.aborted || endpoint(place, context, id);
  const { data: one, etag } = await request("GET", path, { signal });
  replace(tools, buttons(context, path, one, etag, again));
  const recent = h("div", {}, bones(4, 5));
  replace(
    body,
    warning(one),
    h(
      "div",
      { class: "two" },
      card(
        "Recent deliveries",
        recent,
        h("a", { href: `#/webhooks/deliveries?endpoint=${enc(id)}` }, "All"),
      ),
      aboutEndpoint(one),
    ),
  );
  try {
    const page = await get(`${service.mount}/deliveries?endpoint=${enc(id)}&limit=20`, { signal });
    replace(
      recent,
      page.data.length
        ? deliveryTable(page.data, false)
        : padded(h("p", { class: "muted" }, "Nothing was sent yet. Send a ping to try it.")),
    );
  } catch (error) {
    if (!signal.aborted) replace(recent, padded(h("p", { class: "muted" }, error.message)));
  }
}

function buttons(context, path, one, etag, again) {
  const run = (name, text, options) => async () => {
    try {
      const { data } = await write("POST", `${path}/${name}`, options);
      toast(text);
      return data;
    } catch (error) {
      tell(error, again);
      return null;
    }
  };
  const enabled = one.status === "enabled";
  return [
    h("button", { type: "button", onclick: () => ping(path) }, "Send ping"),
    h("button", { type: "button", onclick: () => rotate(context, path, again) }, "Rotate secret"),
    h("button", { type: "button", onclick: () => newReplay(context, one.id) }, "Replay…"),
    h(
      "button",
      {
        type: "button",
        onclick: () =>
          run(enabled ? "disable" : "enable", enabled ? "Disabled." : "Enabled.")().then(again),
      },
      enabled ? "Disable" : "Enable",
    ),
    h(
      "button",
      { type: "button", onclick: () => editEndpoint(context, path, one, etag, again) },
      "Edit",
    ),
    h(
      "button",
      {
        type: "button",
        class: "danger",
        onclick: async () => {
          if (
            !session.live &&
            !(await confirm("Delete this endpoint?", `${one.url} gets no more events.`, {
              word: "Delete",
              danger: true,
            }))
          )
            return;
          try {
            await write("DELETE", path, {
              headers: { "If-Match": etag },
              what: "Delete this live endpoint?",
            });
            location.hash = "#/webhooks/endpoints";
          } catch (error) {
            tell(error, again);
          }
        },
      },
      "Delete",
    ),
  ];
}

/** What is wrong with the endpoint, if anything is. */
function warning(one) {
  const enabled = one.status === "enabled";
  if (enabled && !one.failing_since) return null;
  return h(
    "div",
    { class: "callout warn" },
    enabled
      ? [
          "Failing since ",
          time(one.failing_since),
          ". The server tries one delivery at a time until one succeeds.",
        ]
      : `Disabled${one.disabled_reason ? `: ${one.disabled_reason}` : ""}. Only pings are sent; events in the meantime are skipped.`,
  );
}

function aboutEndpoint(one) {
  return card(
    "Endpoint",
    padded(
      facts([
        ["URL", one.url],
        ["Status", health(one)],
        ...Object.entries(one)
          .filter(
            ([name, value]) =>
              !["url", "status", "id", "object", "secret"].includes(name) && value !== null,
          )
          .map(([name, value]) => [
            name.replaceAll("_", " "),
            Array.isArray(value)
              ? value.join(", ")
              : cell(value, { format: /_at$|_since$|_until$/.test(name) ? "date-time" : "full" }),
          ]),
      ]),
    ),
  );
}

async function ping(path) {
  try {
    const { data } = await write("POST", `${path}/ping`, { what: "Send a live ping?" });
    await dialog({
      title: data.status === "succeeded" ? "The ping arrived" : `The ping: ${data.status}`,
      wide: true,
      body: data.attempt ? attempt(data.attempt) : h("p", {}, "There is no result yet."),
      actions: (close) => [
        data.id &&
          h(
            "a",
            {
              class: "button",
              href: `#/webhooks/deliveries/${enc(data.id)}`,
              onclick: () => close(),
            },
            "Open the delivery",
          ),
        h("button", { type: "button", class: "primary", onclick: () => close() }, "Close"),
      ],
    });
  } catch (error) {
    tell(error);
  }
}

async function rotate({ service }, path, again) {
  const overlap = select(
    [
      ["0", "at once"],
      ["3600", "after an hour"],
      ["86400", "after a day"],
      ["604800", "after a week"],
    ],
    "86400",
  );
  const made = await dialog({
    title: "Rotate the secret",
    body: [
      h(
        "p",
        { class: "muted" },
        "Creates a new secret. Until the old one ends, both sign, so that receivers can change without a gap.",
      ),
      h("br"),
      labelled("The old secret ends", overlap),
    ],
    submit: "Rotate",
    onsubmit: async (close, signal) => {
      const body = { overlap: Number(overlap.value) };
      const options = { body, signal, what: "Rotate a live secret?" };
      try {
        close((await write("POST", `${path}/rotate-secret`, options)).data);
      } catch (error) {
        close(null);
        tell(error);
      }
    },
  });
  if (!made) return;
  await signingSecret(made);
  again();
}

async function editEndpoint({ service }, path, one, etag, again) {
  const about = service.all.find((other) => other.name === "webhook-endpoints");
  const fields = form(service.document, about.update.schema, one, { skip: ["secret"] });
  const saved = await dialog({
    title: "Edit endpoint",
    body: fields.element,
    submit: "Save",
    onsubmit: async (close, signal) => {
      const body = fields.read();
      if (!body) return;
      if (!Object.keys(body).length) return close(one);
      const options = { body, signal, headers: { "If-Match": etag } };
      options.what = "Change this live endpoint?";
      try {
        close((await write("PATCH", path, options)).data);
      } catch (error) {
        fields.show(
          error instanceof Problem && error.status === 412
            ? new Error(
                "Changed meanwhile. Somebody changed this endpoint after you opened it. What you typed is still here; close and open the form to see the newest version.",
              )
            : error,
        );
      }
    },
  });
  if (saved) again();
}
