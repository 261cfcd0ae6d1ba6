// The shell: sign-in, navigation, the banner. A screen is a module that is loaded when it is opened:
// `show(place, {segments, query, signal})` fills the page. The address after # is the state of the page.
import { get, hooks, isLive, Problem, problem, request, session } from "/console/api.js";
import { dialog, h, icon, labelled, replace } from "/console/dom.js";
import { service } from "/console/schema.js";

const SCREENS = [
  ["home", "Home"],
  ["records", "Records"],
  ["events", "Events"],
  ["webhooks", "Webhooks"],
  ["live", "Live"],
  ["requests", "Requests"],
  ["versions", "Versions"],
  ["schema", "Schema"],
  ["keys", "Keys"],
  ["explorer", "Explorer"],
];
/** Two screens may share a module. */
const MODULES = { schema: "versions" };
const THEMES = ["system", "light", "dark"];
const part = (id) => document.getElementById(id);

let current = null;

/** Opens the screen that the address names. */
async function open() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const segments = (path || "home").split("/").map(decode);
  const [name] = SCREENS.find(([key]) => key === segments[0]) ?? ["home"];
  current?.abort(new DOMException("Another screen was opened.", "AbortError"));
  current = new AbortController();
  const { signal } = current;
  const main = part("main");
  mark(segments);
  part("nav").classList.remove("shown");
  part("menu").setAttribute("aria-expanded", "false");
  try {
    const module = await import(`/console/${MODULES[name] ?? name}.js`);
    const about = await service(signal);
    if (signal.aborted) return;
    part("service").textContent = about.title;
    document.title = `${SCREENS.find(([key]) => key === name)[1]} · ${about.title}`;
    listCollections(about, segments);
    replace(main);
    await module[name === "schema" ? "showSchema" : "show"](main, {
      segments: segments.slice(1),
      query: new URLSearchParams(search),
      signal,
      service: about,
    });
  } catch (error) {
    if (!signal.aborted) replace(main, problem(error));
  }
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function mark(segments) {
  for (const link of part("nav").querySelectorAll("a")) {
    const place = link.getAttribute("href").slice(2).split("/").map(decode);
    const isHere = link.closest(".sub")
      ? place[1] === segments[1] && segments[0] === "records"
      : place[0] === segments[0] && !(place[0] === "records" && segments[1]);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function listCollections(about, segments) {
  const place = part("nav").querySelector(".sub");
  const top = about.collections.filter((one) => one.parents.length === 0);
  if (place.childElementCount === top.length) return;
  replace(
    place,
    top.map((one) =>
      h("a", { href: `#/records/${encodeURIComponent(one.name)}` }, h("span", {}, one.name)),
    ),
  );
  mark(segments);
}

function drawNav() {
  const link = ([key, title]) => h("a", { href: `#/${key}` }, icon(key), title);
  const theme = h(
    "button",
    { type: "button", onclick: () => nextTheme(theme) },
    icon("theme"),
    h("span", {}, themeText()),
  );
  const out = h("button", { type: "button", onclick: signOut }, icon("out"), "Sign out");
  // The collections come last, so that nothing moves when they arrive.
  replace(
    part("nav"),
    SCREENS.map(link),
    h("div", { class: "small muted nav-title", "aria-hidden": "true" }, "Collections"),
    h("div", { class: "sub" }),
    h(
      "div",
      { class: "foot" },
      h("a", { href: "/docs" }, icon("docs"), "Documentation"),
      theme,
      out,
    ),
  );
  const mode = part("mode");
  mode.textContent = session.live ? "live" : "test";
  mode.classList.toggle("live", session.live);
  mode.title = session.live ? "Live data: the console asks before each write." : "Test data.";
}

function themeText() {
  return `Theme: ${document.documentElement.dataset.theme ?? "system"}`;
}

function nextTheme(button) {
  const now = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("restive.theme", next);
  } catch {
    // Storage is blocked: the choice lasts until the page is closed.
  }
  button.lastChild.textContent = themeText();
}

function signOut() {
  current?.abort(new DOMException("Signed out.", "AbortError"));
  session.end();
  location.hash = "";
  door();
}

function enter() {
  part("door").hidden = true;
  part("shell").hidden = false;
  drawNav();
  open();
}

/** The page to sign in. */
function door(message) {
  part("shell").hidden = true;
  const place = part("door");
  place.hidden = false;
  document.title = "Sign in · Console";
  const key = h("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "sk_test_…",
    required: true,
  });
  const wrong = h("p", { class: "wrong", role: "alert" }, message ?? "");
  const go = h("button", { class: "primary", type: "submit" }, "Sign in");
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        wrong.textContent = await useKey(key.value.trim());
        go.disabled = false;
        if (!wrong.textContent) enter();
        else key.focus();
      },
    },
    labelled("API key", key, "The key stays in this tab and is forgotten when you close it."),
    h("div", { class: "field" }, wrong),
    go,
  );
  const logo = part("side").querySelector(".mark").cloneNode(true);
  replace(
    place,
    h(
      "div",
      { class: "card" },
      logo,
      h("h1", {}, "Sign in"),
      h(
        "p",
        {},
        "Use an API key of the service. The console can do what the key may do, and nothing else.",
      ),
      form,
      h(
        "p",
        { class: "note muted" },
        "No key at hand? The server prints a link with a one-time login when it starts, and “restive keys create” makes a key.",
      ),
    ),
  );
  key.focus();
}

/**
 * Uses the key from now on, if it works; returns an empty text, or why it does not. `present` is the
 * session that goes on: its forms and records are of one account and mode.
 */
async function useKey(key, { present, signal, login } = {}) {
  if (!/^[\x21-\x7e]+$/.test(key)) return "Paste an API key, such as sk_test_…";
  if (present && isLive(key) !== present.live)
    return `What is open here is ${present.live ? "live" : "test"} data. Paste such a key, or cancel and sign out.`;
  let account = null;
  let made = null;
  try {
    const { mount } = await service();
    made = login ? `${mount}/keys/${encodeURIComponent(login)}` : null;
    account = (await get(`${mount}/account`, { key, signal })).id;
  } catch (error) {
    // A restricted key may not read its account; it is valid all the same.
    if (!(error instanceof Problem && error.status === 403)) return error.message;
  }
  if (present && !(account && present.account))
    return "Nothing says that this key is of the same account: it, or the earlier one, may not read its account. Paste another one, or cancel and sign out.";
  if (present && account !== present.account)
    return "This key belongs to another account. Paste one of the same account, or cancel and sign out.";
  session.use(key, account, made);
  return "";
}

/** `#login=TOKEN`: exchanges the one-time token of the start-up line for a key. */
async function login(token) {
  history.replaceState(null, "", "/console#/home");
  part("shell").hidden = true;
  try {
    const { data } = await request("POST", "/console/login", { body: { token } });
    const wrong = await useKey(data.secret, { login: data.id });
    if (wrong) door(wrong);
    else enter();
  } catch (error) {
    door(
      error instanceof Problem && error.status === 404
        ? "This server has no one-time login. Use an API key."
        : "This login link was used already or has expired. Use an API key, or start the server again for a new link.",
    );
  }
}

hooks.away = (text) => {
  const banner = part("banner");
  banner.textContent = text ?? "The server is away, trying again… Nothing you typed is lost.";
  banner.hidden = false;
};
hooks.back = () => (part("banner").hidden = true);

let asking = null;
/** The key for which a person was asked and gave no other one. */
let declined = null;
/**
 * The key ended while the page was open: what was typed stays, another key is asked for. Requests
 * that the page repeats by itself ask only once.
 */
hooks.unauthorized = (error, method) => {
  if (part("shell").hidden || (method === "GET" && declined === session.key)) return false;
  asking ??= askForKey(error).finally(() => (asking = null));
  return asking;
};

async function askForKey(error) {
  const key = h("input", { type: "password", autocomplete: "off", placeholder: "sk_test_…" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const isNew = await dialog({
    title: "This key no longer works",
    body: [
      h("p", {}, `${error.message} Paste another key to continue; what you typed stays.`),
      labelled("API key", key),
      wrong,
    ],
    casual: true,
    submit: "Continue",
    onsubmit: async (close, signal) => {
      wrong.textContent = await useKey(key.value.trim(), { present: session, signal });
      if (!wrong.textContent) close(true);
    },
  });
  declined = isNew ? null : session.key;
  if (isNew) drawNav();
  return Boolean(isNew);
}

part("menu").addEventListener("click", () => {
  const shown = part("nav").classList.toggle("shown");
  part("menu").setAttribute("aria-expanded", String(shown));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  part(part("shell").hidden ? "door" : "main").focus();
});
// "/" goes to the search, as on other pages.
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  const search = part("main").querySelector('input[type="search"]');
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing || !search)
    return;
  event.preventDefault();
  search.focus();
});
addEventListener("hashchange", () => {
  const token = /^#login=(.+)$/.exec(location.hash)?.[1];
  if (token) login(token);
  else if (session.key) open();
});

const token = /^#login=(.+)$/.exec(location.hash)?.[1];
if (token) login(token);
else if (session.key) enter();
else door();
