// The client of the public API: key, errors, retries while the server is away, the event stream.
// The console can do only what its key can do.
import { clock, confirm, dialog, h, prose } from "/console/dom.js";

const STORED = "restive.key";
const STORED_ACCOUNT = "restive.account";
const STORED_LOGIN = "restive.login";
/** Waits between attempts while the server is away; the last one repeats. */
const PAUSES_MS = [500, 1000, 2000, 4000];
/** A clock that differs by less is not corrected: the header has whole seconds. */
const MIN_SKEW_MS = 5000;

export const isLive = (key) => /^[sr]k_live_/.test(key);

export const session = {
  get key() {
    return sessionStorage.getItem(STORED);
  },
  /** The id of the key's account; null if the key may not read it. */
  get account() {
    return sessionStorage.getItem(STORED_ACCOUNT);
  },
  /** `login`: the path of a key that the one-time login made. */
  use(key, account, login) {
    keep(STORED, key);
    keep(STORED_ACCOUNT, account);
    keep(STORED_LOGIN, login);
  },
  /** Revokes the key that the one-time login made: nobody else has it. It ends by itself, too. */
  end() {
    const [key, login] = [this.key, sessionStorage.getItem(STORED_LOGIN)];
    this.use(null, null);
    if (!login) return;
    const headers = { Authorization: `Bearer ${key}` };
    fetch(`${login}?self=true`, { method: "DELETE", headers, credentials: "omit", keepalive: true }).catch(() => {});
  },
  get live() {
    return isLive(this.key ?? "");
  },
};

function keep(name, value) {
  if (value) sessionStorage.setItem(name, value);
  else sessionStorage.removeItem(name);
}

/** Calls of the page: the banner while the server is away, the dialog for a key that ended. */
export const hooks = { away: () => {}, back: () => {}, unauthorized: async () => false };

/** An error of the API. */
export class Problem extends Error {
  constructor(status, error, requestId) {
    super(error.message ?? `The server answered with ${status}.`);
    this.status = status;
    this.code = error.code ?? String(status);
    this.param = error.param ?? null;
    this.errors = Array.isArray(error.errors) ? error.errors : [];
    this.details = error;
    this.requestId = error.request_id ?? requestId;
  }
}

export function sleep(duration, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(resolve, duration);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

let isAway = false;
/** Requests that are sent again until the server answers. */
const waiting = new Set();

function answered() {
  if (isAway) hooks.back();
  isAway = false;
}

/** Headers with a value that `fetch` refuses would look like a server that is away. */
function checked(headers) {
  try {
    return new Headers(headers);
  } catch {
    throw new Error("A header has a character that HTTP does not allow. Nothing was sent.");
  }
}

/**
 * Sends until the server answers. Writes have an idempotency key, so that this is safe; they are not
 * repeated with another key than the one they began with.
 */
async function send(path, { key, ...options }) {
  const began = session.key;
  try {
    for (let attempt = 0; ; attempt += 1) {
      if (options.method !== "GET" && session.key !== began)
        throw new Error("The key was changed while this was sent. It is not sent again.");
      const used = key ?? session.key;
      const authorization = used ? { Authorization: `Bearer ${used}` } : {};
      const headers = checked({ ...options.headers, ...authorization });
      let response = null;
      try {
        const sent = { cache: "no-store", ...options, headers, credentials: "omit" };
        response = await fetch(path, sent);
      } catch (error) {
        if (options.signal?.aborted) throw error;
      }
      const busy = response?.status === 503 || response?.status === 502 || response?.status === 504;
      const limited = response?.status === 429;
      if (response && !busy && !limited) {
        answered();
        return response;
      }
      isAway = true;
      waiting.add(options);
      hooks.away(limited ? "Too many requests with this key. Trying again…" : undefined);
      const asked = Number(response?.headers.get("retry-after"));
      const pause =
        asked > 0 ? Math.min(asked, 30) * 1000 : PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)];
      await sleep(pause, options.signal);
    }
  } finally {
    // A person may stop the last one that waits: nothing else would say that the server is back.
    waiting.delete(options);
    if (!waiting.size) answered();
  }
}

/**
 * A request, with `key` or the key of the session. Returns `{ data, status, headers, etag }`, or
 * throws a `Problem`.
 */
export async function request(method, path, options = {}) {
  const { body, headers = {}, version, signal, raw, key, cache = "no-store" } = options;
  const sent = { Accept: "application/json", ...headers };
  if (version) sent["Restive-Version"] = version;
  if (body !== undefined)
    sent["Content-Type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  const content = body === undefined ? undefined : raw ? body : JSON.stringify(body);
  const response = await send(path, { method, headers: sent, body: content, signal, cache, key });
  const text = await response.text();
  noteClock(response.headers.get("date"));
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = text;
  }
  if (response.ok || response.status === 304) {
    return {
      data,
      status: response.status,
      headers: response.headers,
      etag: response.headers.get("etag"),
    };
  }
  const error =
    data?.error ?? (data?.code ? data : { message: typeof data === "string" ? data : undefined });
  const problem = new Problem(response.status, error, response.headers.get("request-id"));
  const ended = problem.status === 401 && session.key && !key;
  if (!ended || !(await hooks.unauthorized(problem, method))) throw problem;
  // A person agreed to this write with the other key.
  if (method !== "GET") throw new Error("Nothing was written. Try again with the new key.");
  return request(method, path, options);
}

function noteClock(date) {
  const skew = Date.parse(date) - Date.now();
  if (!Number.isNaN(skew)) clock.skew = Math.abs(skew) > MIN_SKEW_MS ? skew : 0;
}

export async function get(path, options) {
  return (await request("GET", path, options)).data;
}

/** 128 random bits. `crypto.randomUUID` is missing in pages without TLS that are not local. */
function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

/** Thrown when a person declines a write in live mode. */
export class Declined extends Error {}

/** A write: asks first in live mode, and can be repeated without a second effect. */
export async function write(method, path, { what, idempotencyKey, ...options } = {}) {
  if (session.live) {
    const text = `${method} ${path}. This key writes live data.`;
    const agreed = await confirm(what ?? "Write live data?", text, {
      word: "Write live data",
      danger: method === "DELETE",
    });
    if (!agreed) throw new Declined("Nothing was sent.");
  }
  const headers = { ...options.headers };
  if (method === "POST" || method === "PATCH")
    headers["Idempotency-Key"] = idempotencyKey ?? unique();
  return request(method, path, { ...options, headers });
}

/** Reads every page of a short list. */
export async function all(path, options, most = 500) {
  const found = [];
  let after = null;
  do {
    const url = new URL(path, location.origin);
    url.searchParams.set("limit", "100");
    if (after) url.searchParams.set("after", after);
    const page = await get(url.pathname + url.search, options);
    found.push(...page.data);
    after = page.pagination?.next_cursor;
  } while (after && found.length < most);
  return found;
}

/** Waits until the tab is visible. */
export async function visible(signal) {
  while (document.hidden && !signal.aborted)
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  signal.throwIfAborted();
}

/** A controller that ends with the signal, or as soon as the tab is hidden. */
function whileVisible(signal) {
  const ended = new AbortController();
  const options = { signal: ended.signal };
  signal.addEventListener("abort", () => ended.abort(), options);
  const look = () => document.hidden && ended.abort();
  document.addEventListener("visibilitychange", look, options);
  look();
  return ended;
}

/**
 * Follows the event stream until the signal ends it, across restarts of the server, from the last
 * position, or from the one that `resume()` returns. `onevent({type, id, data})`,
 * `onstate("open" | "waiting" | Problem)`. A hidden tab holds no connection: browsers open six of
 * them to a server, for all tabs together.
 */
export async function follow(path, { types, since, signal, resume, onevent, onstate }) {
  let position = since ?? null;
  for (let attempt = 0, first = true; !signal.aborted; attempt += 1, first = false) {
    let connection = null;
    try {
      await visible(signal);
      if (resume && !first) position = await resume();
      connection = whileVisible(signal);
      const response = await openStream(path, types, position, connection.signal);
      attempt = 0;
      onstate("open");
      for await (const event of events(response.body)) {
        position = event.id || position;
        if (event.data !== undefined) onevent(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status < 500) return onstate(error);
    } finally {
      connection?.abort();
    }
    onstate("waiting");
    await sleep(PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)], signal).catch(() => {});
  }
}

async function openStream(path, types, position, signal) {
  const url = new URL(path, location.origin);
  if (types) url.searchParams.set("types", types);
  if (position) url.searchParams.set("since", position);
  const headers = { Authorization: `Bearer ${session.key}`, Accept: "text/event-stream" };
  const response = await fetch(url, { headers, signal, cache: "no-store", credentials: "omit" });
  if (response.status >= 400 && response.status < 500 && response.status !== 429) {
    const error = await response.json().catch(() => ({}));
    throw new Problem(response.status, error.error ?? {});
  }
  if (!response.ok) throw new Error(String(response.status));
  return response;
}

/** The events of a body in the format of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const complete = text.split("\n");
    text = complete.pop();
    for (const raw of complete) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (event.data !== undefined || event.id)
          yield { type: event.event ?? "message", id: event.id, data: event.data };
        event = {};
        continue;
      }
      const colon = line.indexOf(":");
      if (colon <= 0) continue;
      const [name, content] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
      event[name] =
        name === "data" && event.data !== undefined ? `${event.data}\n${content}` : content;
    }
  }
}

/** What went wrong, as a sentence with what to do. */
export function problem(error) {
  const box = (kind, title, text) =>
    h(
      "div",
      { class: "head" },
      h(
        "div",
        { class: `callout ${kind}`, role: "alert" },
        h("h2", {}, title),
        h("p", {}, prose(text)),
      ),
    );
  if (!(error instanceof Problem))
    return box("bad", "The console has an error", String(error?.message ?? error));
  const id = error.requestId ? ` Request: ${error.requestId}.` : "";
  if (error.status === 403)
    return box(
      "",
      "This key may not see this",
      `${error.message} Sign in with a key that has the scope, or ask for one.`,
    );
  if (error.code === "route_not_found")
    return box("", "This server does not offer this yet", "The screen needs a newer server.");
  if (error.status === 404) return box("", "There is no such thing here", `${error.message}`);
  return box("bad", `The server refused: ${error.code}`, error.message + id);
}

/** An error of a write that has no form. */
export async function tell(error, again) {
  if (error instanceof Declined || error.name === "AbortError") return;
  const changed = error instanceof Problem && error.status === 412;
  await dialog({
    title: changed
      ? "Changed meanwhile"
      : error instanceof Problem && error.status === 403
        ? "This key may not do this"
        : "This did not work",
    body: h(
      "p",
      {},
      changed
        ? "Somebody changed this record after you opened it. Nothing was written; the page now shows the newest version."
        : prose(error.message),
    ),
  });
  if (changed) again?.();
}
