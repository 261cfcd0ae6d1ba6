// Builds the page. Text reaches the document only as text nodes and attributes, never as HTML, so
// that a record cannot contain markup. Everything here is independent of the API.

/** Text of the API, in which `names` stand in backticks. */
export function prose(text) {
  return String(text ?? "")
    .split(/`([^`]*)`/)
    .map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

/** An element: attributes, properties for `value` and `checked`, listeners for functions. */
export function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  set(made, attributes);
  made.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function s(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter((child) => child));
  return made;
}

function set(made, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else if (name === "href") made.setAttribute(name, safe(String(value)));
    else made.setAttribute(name, value === true ? "" : value);
  }
}

// Links lead to pages of this service only: a `javascript:` address of a record must not run. A
// browser reads `\` as `/` and skips control characters, so `/\host` and `/<tab>/host` name hosts.
export function safe(address) {
  return /^(#|\/(?![/\\]))\P{Cc}*$/u.test(address) ? address : "#";
}

export function replace(place, ...children) {
  place.replaceChildren(
    ...children.flat(Infinity).filter((child) => child != null && child !== false),
  );
}

const ICONS = {
  home: "M3 8.5 10 3l7 5.5V17H3zM8 17v-5h4v5",
  records: "M3 5h14M3 10h14M3 15h14M8 5v10",
  events: "M11 2 5 11h5l-1 7 6-9h-5z",
  webhooks:
    "M10 10 7 15M10 10 6.5 4.5M10 10h6M4 16.5a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M4.5 4a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M15 10a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0",
  live: "M10 10h.01M6.5 13.5a5 5 0 0 1 0-7M13.5 6.5a5 5 0 0 1 0 7M4 16a8.5 8.5 0 0 1 0-12M16 4a8.5 8.5 0 0 1 0 12",
  requests: "M4 6h9M10 3l3 3-3 3M16 14H7M10 11l-3 3 3 3",
  versions: "M6 3v14M6 8h5a3 3 0 0 0 3-3V3M6 8v2",
  schema: "M3 3h6v5H3zM11 12h6v5h-6zM6 8v6h5",
  keys: "M8 12a4 4 0 1 1 3-3l6 6v2h-3v-2h-2v-2z",
  explorer: "m4 6 4 4-4 4M10 15h6",
  theme: "M10 3a7 7 0 1 0 7 7 5.5 5.5 0 0 1-7-7z",
  out: "M8 3H4v14h4M13 13l3-3-3-3M16 10H8",
  docs: "M4 3h9l3 3v11H4zM7 9h6M7 13h6",
};

export function icon(name) {
  return s("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

// Formats

export function number(value) {
  return typeof value === "number" ? value.toLocaleString("en-US") : "–";
}

export function milliseconds(value) {
  if (value == null) return "–";
  if (value < 0.05) return value > 0 ? "<0.1 ms" : "0 ms";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(value >= 10 ? 0 : 1)} ms`;
}

export function instant(value) {
  const date = new Date(typeof value === "number" ? value * 1000 : value);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** A time as "3 min ago". The clock of the server counts: `skew` is its distance to ours. */
export function ago(value, skew = clock.skew) {
  const date = instant(value);
  if (!date) return "–";
  const seconds = Math.round((Date.now() + skew - date) / 1000);
  const size = Math.abs(seconds);
  const words =
    size < 5
      ? "now"
      : size < 60
        ? `${size} s`
        : size < 3600
          ? `${Math.floor(size / 60)} min`
          : size < 86_400
            ? `${Math.floor(size / 3600)} h`
            : size < 30 * 86_400
              ? `${Math.floor(size / 86_400)} d`
              : null;
  if (words === null) return date.toISOString().slice(0, 10);
  return words === "now" ? words : seconds < 0 ? `in ${words}` : `${words} ago`;
}

/** Milliseconds that the server's clock is ahead of ours. */
export const clock = { skew: 0 };

export function time(value) {
  const date = value == null ? null : instant(value);
  if (!date) return h("span", { class: "null" }, "–");
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, ago(value));
}

export function badge(text, kind) {
  return h("span", { class: `badge ${kind ?? tone(text)}` }, String(text));
}

function tone(word) {
  if (/^(succeeded|delivered|enabled|active|paid|shipped|completed|ok|2..)$/.test(word))
    return "ok";
  if (/^(failed|disabled|revoked|expired|5..)$/.test(word)) return "bad";
  if (/^(pending|running|processing|4..)$/.test(word)) return "warn";
  return "";
}

// Parts

export function head(title, tools = [], about = null) {
  const name = typeof title === "string" ? h("h1", {}, title) : title;
  return h(
    "div",
    { class: "head" },
    name,
    h("div", { class: "tools" }, tools),
    about && h("p", { class: "about" }, prose(about)),
  );
}

/** "Records / books / book_…": the last one is the heading. */
export function crumbs(...parts) {
  const last = parts.length - 1;
  return h(
    "div",
    { class: "crumbs" },
    parts.map((part, place) =>
      place === last
        ? h("h1", {}, part)
        : [
            h("a", { href: part[1] }, part[0]),
            h("span", { class: "sep", "aria-hidden": "true" }, "/"),
          ],
    ),
  );
}

export function card(title, body, tools) {
  return h(
    "section",
    { class: "card" },
    title && h("div", { class: "title" }, h("h2", {}, title), tools),
    body,
  );
}

export function padded(...children) {
  return h("div", { class: "body" }, children);
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), more);
}

export function code(text, more = "") {
  const copy = h(
    "button",
    { type: "button", class: "small", onclick: () => copyText(text, copy) },
    "Copy",
  );
  return h("div", { class: `code ${more}` }, h("pre", { tabindex: "0" }, text), copy);
}

export async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

/** JSON with colours, as text nodes. */
export function json(value) {
  const pre = h("pre", { class: "json", tabindex: "0" });
  const text = JSON.stringify(value, null, 2) ?? "";
  const shown =
    text.length > 200_000 ? `${text.slice(0, 200_000)}\n… ${number(text.length)} characters` : text;
  const parts =
    /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;
  let at = 0;
  for (const found of shown.matchAll(parts)) {
    pre.append(shown.slice(at, found.index));
    const kind = found[1] ? (found[2] ? "k" : "s") : found[3] ? "l" : "n";
    pre.append(h("span", { class: kind }, found[1] ?? found[0]), found[1] ? (found[2] ?? "") : "");
    at = found.index + found[0].length;
  }
  pre.append(shown.slice(at));
  const copy = h(
    "button",
    { type: "button", class: "small", onclick: () => copyText(text, copy) },
    "Copy",
  );
  return h("div", { class: "code" }, pre, copy);
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Text that only begins like a time, or that a page shows in full, is shown as it is. */
function isTime(value, format) {
  if (typeof value === "object" || instant(value) === null) return false;
  return format === "date-time" || (format !== "full" && TIME.test(value));
}

/** The value of a field as a table cell or a fact shows it. */
export function cell(value, { link, format } = {}) {
  if (value === null || value === undefined) return h("span", { class: "null" }, "–");
  if (link)
    return h(
      "a",
      { href: link },
      format === "full" ? h("span", { class: "id" }, String(value)) : identifier(String(value)),
    );
  if (format === "id") return identifier(String(value));
  if (isTime(value, format)) return time(value);
  if (format === "state") return badge(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number")
    return value.toLocaleString("en-US", { maximumFractionDigits: 12 });
  if (typeof value === "object") return h("span", { class: "mono" }, short(JSON.stringify(value)));
  return h("span", { dir: "auto" }, format === "full" ? String(value) : short(String(value)));
}

/** An id in few characters: its prefix and its end. The whole id is its title. */
export function identifier(id) {
  const parts = /^([a-z_]{1,24}_)[0-9a-z]{20,}([0-9a-z]{6})$/.exec(id);
  return h("span", { class: "id", title: id }, parts ? `${parts[1]}…${parts[2]}` : short(id, 40));
}

export function short(text, most = 120) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** `columns`: `{title, num, cell(row), sort}`; `open(row)` is the address of the row's page. */
export function table({ columns, rows, open, label, sorted, onsort }) {
  const heading = (column) => {
    const mark = sorted === column.sort ? " ↑" : sorted === `-${column.sort}` ? " ↓" : "";
    const order = mark ? (mark === " ↑" ? "ascending" : "descending") : null;
    const inside =
      column.sort && onsort
        ? h(
            "button",
            {
              type: "button",
              onclick: () => onsort(sorted === `-${column.sort}` ? column.sort : `-${column.sort}`),
            },
            column.title + mark,
          )
        : column.title;
    return h("th", { scope: "col", class: column.num ? "num" : null, "aria-sort": order }, inside);
  };
  const line = (row) => {
    const address = open?.(row);
    const go = typeof address === "string" ? () => (location.hash = address) : address;
    const cells = columns.map((column, place) => {
      const content = column.cell(row);
      const linked =
        place === 0 && typeof address === "string" && !(content instanceof HTMLAnchorElement)
          ? h("a", { href: address, class: "first" }, content)
          : content;
      return h("td", { class: column.num ? "num" : null }, linked);
    });
    const clicked = (event) =>
      !event.target.closest("a, button, input") && !String(getSelection()) && go?.();
    return h("tr", { class: go ? "open" : null, onclick: go ? clicked : null }, cells);
  };
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map(heading))),
      h("tbody", {}, rows.map(line)),
    ),
  );
}

/** A table of the same height while its rows are read. */
export function bones(columns = 5, rows = 10) {
  const line = () =>
    h(
      "tr",
      {},
      Array.from({ length: columns }, () => h("td", {}, h("span", { class: "bone" }))),
    );
  return h(
    "div",
    { class: "scroll", "aria-busy": "true" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          Array.from({ length: columns }, () => h("td", {}, " ")),
        ),
      ),
      h("tbody", {}, Array.from({ length: rows }, line)),
    ),
  );
}

export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

let counted = 0;
export function uid(word = "f") {
  counted += 1;
  return `${word}${counted}`;
}

/** An input with its label. */
export function labelled(label, input, hint) {
  input.id ||= uid();
  const hinted = hint && h("span", { class: "hint", id: `${input.id}h` }, hint);
  if (hinted) input.setAttribute("aria-describedby", hinted.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, hinted);
}

export function select(options, value, attributes = {}) {
  const made = options.map((option) => {
    const [key, text] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: key, selected: String(key) === String(value ?? "") }, text);
  });
  return h("select", attributes, made);
}

/**
 * A modal dialog; resolves with what `close(value)` was called with, `undefined` for Escape. A form
 * has `submit`, the word on its button, and `onsubmit(close, signal)`: it runs once at a time, and
 * the signal ends when the dialog is closed. What a person typed is not discarded without a
 * question, unless `casual`.
 */
export function dialog({ title, body, actions, wide, submit, danger, onsubmit, casual }) {
  return new Promise((resolve) => {
    const id = uid("d");
    const ended = new AbortController();
    let running = false;
    const close = (value) => {
      ended.abort();
      box.close();
      box.remove();
      resolve(value);
    };
    const typed = () => !casual && entered(form) !== before;
    const leave = async () => {
      const question = running ? STOP : typed() ? DISCARD : null;
      if (!question || (await confirm(...question))) close(undefined);
    };
    const box = h("dialog", {
      "aria-labelledby": id,
      class: wide ? "wide" : null,
      oncancel: (event) => {
        event.preventDefault();
        leave();
      },
      // A browser may close it without `cancel`, if Escape is pressed twice.
      onclose: () => {
        if (ended.signal.aborted) return;
        box.showModal();
        leave();
      },
    });
    const form = h("form", {
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        if (running) return;
        running = true;
        const button = form.querySelector("button[type=submit]");
        if (button) button.disabled = true;
        try {
          await onsubmit?.(close, ended.signal);
        } finally {
          running = false;
          if (button) button.disabled = false;
        }
      },
    });
    const cancel = () =>
      h("button", { type: "button", onclick: leave }, submit ? "Cancel" : "Close");
    const kind = `primary ${danger ? "danger" : ""}`;
    form.append(
      h(
        "header",
        {},
        h("h2", { id }, title),
        h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: leave }, "✕"),
      ),
      h("div", { class: "body" }, body),
      h(
        "footer",
        {},
        actions?.(close) ?? [
          cancel(),
          submit && h("button", { type: "submit", class: kind }, submit),
        ],
      ),
    );
    const before = entered(form);
    const unload = (event) => (running || typed()) && event.preventDefault();
    addEventListener("beforeunload", unload, { signal: ended.signal });
    box.append(form);
    document.body.append(box);
    box.showModal();
    const first = box.querySelector(".body :is(input, select, textarea)");
    (first ?? form.querySelector("button[type=submit]"))?.focus();
  });
}

const DISCARD = [
  "Discard what you typed?",
  "The changes in this form were not saved.",
  { word: "Discard", danger: true },
];
const STOP = [
  "Stop waiting for the server?",
  "It has not answered yet. The request is not sent again, but the server may have carried it out: look before you repeat it.",
  { word: "Stop", danger: true },
];

/** What the inputs of a form hold. */
function entered(form) {
  const inputs = [...form.elements].filter((one) => one.type !== "submit" && one.type !== "button");
  return JSON.stringify(inputs.map((one) => (one.type === "checkbox" ? one.checked : one.value)));
}

/** Asks before something happens; true if it shall. */
export async function confirm(title, text, { word = "Continue", danger = false } = {}) {
  const answer = await dialog({
    title,
    body: h("p", {}, text),
    submit: word,
    danger,
    onsubmit: (close) => close(true),
  });
  return answer === true;
}

/** A secret, which only the response that created it has. `lost` says what to do without it. */
export function showSecret(title, secret, lost) {
  return dialog({
    title,
    body: secret
      ? [h("p", {}, "Copy it now: it is shown only once."), h("br"), code(secret, "oneline")]
      : h(
          "p",
          { role: "alert" },
          `It was created, but its text was lost with the connection. ${lost}`,
        ),
  });
}

export function toast(text) {
  const made = h("div", { class: "toast" }, text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), 4000);
}

// Charts: a point for each minute. The viewBox has a unit for each point, so that nothing is measured.

/** Lines over time; a null is a time without a value. */
export function lines(series, { height = 48, label }) {
  const count = Math.max(2, ...series.map((one) => one.length));
  const most = Math.max(1, ...series.flat().map((value) => value ?? 0));
  const y = (value) => (height - 1 - (value / most) * (height - 4)).toFixed(2);
  const path = (points) =>
    points
      .map((value, place) => {
        if (value == null) return "";
        // A single point gets a short line, so that it can be seen.
        const alone = points[place - 1] == null && points[place + 1] == null;
        const to = points[place - 1] == null ? "M" : "L";
        return `${to}${place} ${y(value)}${alone ? `h0.5` : ""}`;
      })
      .join("");
  const first = series[0] ?? [];
  const whole = first.length > 1 && first.every((value) => value != null);
  const size = { viewBox: `0 0 ${count - 1} ${height}`, height, preserveAspectRatio: "none" };
  return s(
    "svg",
    { class: "chart", ...size, role: "img", "aria-label": label },
    s("line", { class: "base", x1: 0, x2: count - 1, y1: height - 0.5, y2: height - 0.5 }),
    whole && s("path", { class: "area", d: `${path(first)}V${height}H0Z` }),
    series.map((points, place) => s("path", { class: `line l${place + 1}`, d: path(points) })),
  );
}

/** Stacked bars: each entry of `stacks` is a list of values from the bottom up. */
export function bars(stacks, { height = 48, label }) {
  const most = Math.max(1, ...stacks.map((stack) => stack.reduce((sum, value) => sum + value, 0)));
  const made = stacks.flatMap((stack, place) => {
    let top = height;
    return stack.map((value, layer) => {
      const tall = (value / most) * (height - 2);
      top -= tall;
      return value
        ? s("rect", {
            class: `b${layer + 1}`,
            x: place + 0.12,
            width: 0.76,
            y: top.toFixed(2),
            height: Math.max(tall, 0.6).toFixed(2),
          })
        : null;
    });
  });
  return s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${Math.max(1, stacks.length)} ${height}`,
      height,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    s("line", { class: "base", x1: 0, x2: stacks.length || 1, y1: height - 0.5, y2: height - 0.5 }),
    made,
  );
}

/** A bar of shares: `[{value, kind}]`. */
export function meter(parts, total, label) {
  const made = parts.map((part) => {
    const bar = h("i", { class: part.kind });
    bar.style.width = `${total ? (100 * part.value) / total : 0}%`;
    return bar;
  });
  return h("div", { class: "meter", role: "img", "aria-label": label }, made);
}

// Events

/** What changed: old values struck out, new ones beside them. */
export function diff(previous, now) {
  const text = (value) =>
    value === null || value === undefined
      ? "–"
      : typeof value === "string"
        ? value
        : JSON.stringify(value);
  return h(
    "div",
    { class: "diff" },
    Object.keys(previous).map((name) =>
      h(
        "div",
        {},
        h("span", { class: "muted" }, name),
        h(
          "span",
          {},
          h("span", { class: "was", dir: "auto" }, text(previous[name])),
          " → ",
          h("span", { class: "is", dir: "auto" }, text(now?.[name])),
        ),
      ),
    ),
  );
}

export function withoutTimes(attributes) {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => name !== "updated_at"));
}

/** Who caused an event: a user, or a key. */
export function actor(event) {
  const { user, key } = event.actor ?? {};
  if (user) return [" by ", user];
  return key ? [" by ", identifier(key)] : "";
}
