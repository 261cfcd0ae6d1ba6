// Keys: create, restrict, roll and revoke. A secret is shown once, by the response that made it.
import { get, problem, Problem, request, session, tell, write } from "/console/api.js";
import {
  badge,
  bones,
  card,
  cell,
  code,
  confirm,
  dialog,
  empty,
  h,
  head,
  identifier,
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

/** Names of scopes that are not collections. */
const OTHER = [
  "events",
  "webhook-endpoints",
  "deliveries",
  "replays",
  "erasures",
  "channel-tokens",
  "presence",
  "account",
  "version-usage",
  "requests",
  "stats",
  "admin",
];

export async function show(place, context) {
  const { service, signal, query } = context;
  const again = () => signal.aborted || show(place, context);
  const result = h("div", { class: "card" }, bones(6, 5));
  const others = h("div", {});
  replace(
    place,
    head(
      "Keys",
      [
        h(
          "button",
          { type: "button", class: "primary", onclick: () => create(context, again) },
          "New key",
        ),
      ],
      "A secret is shown once. Restrict each key to what its program needs.",
    ),
    result,
    others,
  );
  const asked = new URLSearchParams(query);
  asked.set("limit", "50");
  try {
    const page = await get(`${service.mount}/keys?${asked}`, { signal });
    replace(
      result,
      page.data.length
        ? table({ label: "Keys", rows: page.data, columns: keyColumns(context, again) })
        : empty("No keys", "Create one for each program that uses the API."),
      page.pagination?.next_cursor &&
        h(
          "div",
          { class: "pager" },
          h("span", { class: "grow" }),
          h(
            "a",
            {
              class: "button",
              href: `#/keys?after=${encodeURIComponent(page.pagination.next_cursor)}`,
            },
            "More",
          ),
        ),
    );
    accounts(context, others, again);
  } catch (error) {
    if (signal.aborted) return;
    const missing = error instanceof Problem && error.status === 404;
    const denied = error instanceof Problem && error.status === 403;
    replace(
      result,
      missing || denied
        ? empty(
            denied ? "This key may not manage keys" : "Not on this server",
            denied
              ? `${error.message} Keys with the scope “admin” may. On the server:`
              : "Keys are made on the server:",
            code("restive keys create --name my-program", "oneline"),
          )
        : padded(problem(error)),
    );
  }
}

/** The accounts, for keys that may see them. */
async function accounts({ service, signal }, place, again) {
  const path = `${service.mount}/accounts`;
  const page = await get(`${path}?limit=100`, { signal }).catch(() => null);
  if (!page?.data || signal.aborted) return;
  const rename = async (one) => {
    const name = await ask(one ? "Rename the account" : "New account", one?.name ?? "");
    if (name === undefined) return;
    try {
      if (one)
        await write("PATCH", `${path}/${encodeURIComponent(one.id)}`, {
          body: { name },
          what: "Rename this account?",
        });
      else await write("POST", path, { body: { name }, what: "Create an account?" });
      again();
    } catch (error) {
      tell(error, again);
    }
  };
  const remove = async (one) => {
    if (
      !(await confirm(
        `Delete “${one.name ?? one.id}”?`,
        "Only an account without records and active keys can be deleted.",
        { word: "Delete", danger: true },
      ))
    )
      return;
    try {
      await write("DELETE", `${path}/${encodeURIComponent(one.id)}`, {
        what: "Delete this account?",
      });
      again();
    } catch (error) {
      tell(error, again);
    }
  };
  replace(
    place,
    h("br"),
    card(
      "Accounts",
      table({ label: "Accounts", rows: page.data, columns: accountColumns(rename, remove) }),
      h("button", { type: "button", class: "small", onclick: () => rename(null) }, "New account"),
    ),
  );
}

function ask(title, value) {
  const name = h("input", { type: "text", autocomplete: "off", value });
  return dialog({
    title,
    body: labelled("Name", name),
    submit: "Save",
    onsubmit: (close) => close(name.value.trim()),
  });
}

function status(one) {
  if (one.revoked_at) return badge("revoked", "bad");
  if (one.expires_at && new Date(one.expires_at) < new Date()) return badge("expired", "bad");
  return one.expires_at ? ["ends ", time(one.expires_at)] : badge("active", "ok");
}

/**
 * What a key may do: everything, with or without the administration of keys, or what is ticked in
 * two columns. `scopes` null means everything.
 */
function scopePicker(service, { scopes = null, admin = false } = {}) {
  const names = [...new Set(["*", ...service.collections.map((one) => one.name), ...OTHER])];
  const known = new Set(names.flatMap((name) => [`${name}:read`, `${name}:write`]));
  const others = (scopes ?? []).filter((scope) => !known.has(scope));
  const boxes = [];
  const box = (scope) => {
    const checked = Boolean(scopes?.includes(scope));
    const input = h("input", { type: "checkbox", value: scope, checked, "aria-label": scope });
    boxes.push(input);
    return input;
  };
  const grid = table({
    label: "Scopes",
    rows: names,
    columns: [
      { title: "", cell: (name) => (name === "*" ? "* (all collections)" : name) },
      { title: "Read", cell: (name) => box(`${name}:read`) },
      { title: "Write", cell: (name) => box(`${name}:write`) },
    ],
  });
  const kinds = [
    ["some", "Only what is ticked below"],
    ["all", "All data"],
    ["admin", "All data, and manage keys and accounts"],
  ];
  const kind = select(kinds, scopes ? "some" : admin ? "admin" : "all");
  // Scopes of collections that are gone: the key keeps only what is ticked.
  const rest = others.map((scope) => h("label", { class: "check" }, box(scope), scope));
  const part = h("div", { hidden: !scopes }, grid, rest);
  kind.addEventListener("change", () => (part.hidden = kind.value !== "some"));
  const ticked = () => boxes.filter((one) => one.checked).map((one) => one.value);
  return {
    element: h("div", {}, labelled("May use", kind), part),
    read: () =>
      kind.value === "some"
        ? { scopes: ticked(), admin: false }
        : { scopes: null, admin: kind.value === "admin" },
  };
}

async function create({ service }, again) {
  const name = h("input", { type: "text", autocomplete: "off", placeholder: "billing worker" });
  const ends = select(
    [
      ["", "Never"],
      ["1", "After a day"],
      ["30", "After 30 days"],
      ["365", "After a year"],
    ],
    "",
  );
  const scopes = scopePicker(service);
  const wrong = h("div", { class: "callout bad", role: "alert", hidden: true });
  const made = await dialog({
    title: "New key",
    wide: true,
    body: [
      wrong,
      labelled(
        "Name",
        name,
        `What uses it. The key works with ${session.live ? "live" : "test"} data, as yours does.`,
      ),
      labelled("Ends", ends),
      scopes.element,
    ],
    submit: "Create",
    onsubmit: async (close, signal) => {
      const { scopes: listed, admin } = scopes.read();
      const body = { scopes: listed };
      if (admin) body.admin = true;
      if (name.value.trim()) body.name = name.value.trim();
      if (ends.value)
        body.expires_at = new Date(Date.now() + Number(ends.value) * 86_400_000).toISOString();
      try {
        const options = { body, signal, what: "Create a key?" };
        close((await write("POST", `${service.mount}/keys`, options)).data);
      } catch (error) {
        wrong.textContent = [
          error.message,
          ...(error.errors ?? []).slice(1).map((one) => one.message),
        ].join(" ");
        wrong.hidden = false;
      }
    },
  });
  if (made) await secret(made, again);
}

async function secret(made, again) {
  const lost = "Revoke this key and create another one.";
  await showSecret("The secret key", made.secret, lost);
  again();
}

async function restrict({ service }, listed, again) {
  const path = `${service.mount}/keys/${encodeURIComponent(listed.id)}`;
  // The list may be old: the form shows what the key may do at present.
  const found = await request("GET", path).catch((error) => void tell(error, again));
  if (!found) return;
  const { data: one, etag } = found;
  const name = h("input", { type: "text", autocomplete: "off", value: one.name ?? "" });
  const scopes = scopePicker(service, one);
  const wrong = h("div", { class: "callout bad", role: "alert", hidden: true });
  const read = () => Object.entries({ name: name.value.trim() || null, ...scopes.read() });
  const before = Object.fromEntries(read());
  const isChanged = ([member, value]) => JSON.stringify(value) !== JSON.stringify(before[member]);
  const done = await dialog({
    title: `Restrict ${one.name ?? one.hint ?? one.id}`,
    wide: true,
    body: [wrong, labelled("Name", name), scopes.element],
    submit: "Save",
    onsubmit: async (close, signal) => {
      const body = Object.fromEntries(read().filter(isChanged));
      if (!Object.keys(body).length) return close(one);
      const headers = { "If-Match": etag };
      try {
        close(
          (await write("PATCH", path, { body, headers, signal, what: "Change this key?" })).data,
        );
      } catch (error) {
        wrong.textContent =
          error instanceof Problem && error.status === 412
            ? "Changed meanwhile. Close and open this form to see the newest version."
            : error.message;
        wrong.hidden = false;
      }
    },
  });
  if (!done) return;
  toast("Saved.");
  again();
}

async function roll({ service }, one, again) {
  const path = `${service.mount}/keys/${encodeURIComponent(one.id)}/roll`;
  const overlap = select(
    [
      ["0", "at once"],
      ["1", "after an hour"],
      ["24", "after a day"],
      ["168", "after a week"],
    ],
    "24",
  );
  const text = `Creates a key that replaces “${one.name ?? one.hint}”. Until the old one ends, both work.`;
  const made = await dialog({
    title: "Roll this key",
    body: [h("p", { class: "muted" }, text), h("br"), labelled("The old key ends", overlap)],
    submit: "Roll",
    onsubmit: async (close, signal) => {
      const body = { overlap_hours: Number(overlap.value) };
      try {
        close((await write("POST", path, { body, signal, what: "Roll this key?" })).data);
      } catch (error) {
        close(null);
        tell(error, again);
      }
    },
  });
  if (made) await secret(made, again);
}

async function revoke({ service }, one, again) {
  if (
    !(await confirm(
      "Revoke this key?",
      `Requests with “${one.name ?? one.hint}” are refused from then on. This cannot be undone.`,
      { word: "Revoke", danger: true },
    ))
  )
    return;
  const path = `${service.mount}/keys/${encodeURIComponent(one.id)}`;
  try {
    await write("DELETE", path, { what: "Revoke this key?" });
  } catch (error) {
    if (!(error instanceof Problem && error.status === 409)) return tell(error, again);
    if (
      !(await confirm(
        "This is the key you are signed in with",
        `${error.message} Revoke it all the same? You will be signed out.`,
        { word: "Revoke it", danger: true },
      ))
    )
      return;
    await write("DELETE", `${path}?self=true`).catch(tell);
  }
  again();
}

function keyColumns(context, again) {
  return [
    { title: "Name", cell: (one) => one.name ?? h("span", { class: "null" }, "no name") },
    { title: "Key", cell: (one) => h("span", { class: "id" }, one.hint ?? one.id) },
    { title: "Mode", cell: (one) => badge(one.mode, one.mode === "live" ? "warn" : "") },
    {
      title: "May",
      cell: (one) =>
        one.scopes
          ? short(one.scopes.join(", "), 32) || "nothing"
          : one.admin
            ? "everything, keys too"
            : "all data",
    },
    { title: "Last used", cell: (one) => time(one.last_used_at) },
    { title: "Status", cell: status },
    {
      title: "",
      cell: (one) =>
        one.revoked_at
          ? ""
          : h(
              "div",
              { class: "row" },
              h(
                "button",
                { type: "button", class: "small", onclick: () => restrict(context, one, again) },
                "Restrict",
              ),
              h(
                "button",
                { type: "button", class: "small", onclick: () => roll(context, one, again) },
                "Roll",
              ),
              h(
                "button",
                {
                  type: "button",
                  class: "small danger",
                  onclick: () => revoke(context, one, again),
                },
                "Revoke",
              ),
            ),
    },
  ];
}

function accountColumns(rename, remove) {
  return [
    { title: "Name", cell: (one) => one.name ?? h("span", { class: "null" }, "no name") },
    { title: "Id", cell: (one) => identifier(one.id) },
    { title: "Version", cell: (one) => cell(one.api_version, { format: "full" }) },
    { title: "Created", cell: (one) => time(one.created_at) },
    {
      title: "",
      cell: (one) =>
        h(
          "div",
          { class: "row" },
          h("button", { type: "button", class: "small", onclick: () => rename(one) }, "Rename"),
          h(
            "button",
            { type: "button", class: "small danger", onclick: () => remove(one) },
            "Delete",
          ),
        ),
    },
  ];
}
