// Live: open connections, who is online, and a client to try server-sent events and WebSockets.
import { follow, get, Problem, session, sleep, tell, write } from "/console/api.js";
import {
  card,
  code,
  dialog,
  facts,
  h,
  head,
  json,
  labelled,
  number,
  padded,
  replace,
  select,
  table,
  time,
} from "/console/dom.js";
import { resolve } from "/console/schema.js";

/** Messages that the client keeps on the page. */
const KEPT = 200;
const REFRESH_MS = 5000;

export async function show(place, context) {
  const { service, signal } = context;
  const open = h("div", { class: "tall" });
  const online = h("div", { class: "low" });
  replace(
    place,
    head(
      "Live",
      [],
      "The same events over server-sent events, WebSockets and polls. Each message has a position to resume from.",
    ),
    h(
      "div",
      { class: "two" },
      client(context),
      h(
        "div",
        { class: "stack" },
        card("Open connections", padded(open)),
        card("Online", online),
        card(
          "From a terminal",
          padded(code(`curl -N ${location.origin}${service.stream} -u $KEY:`)),
        ),
      ),
    ),
  );
  for (;;) {
    const [stats, presence, health] = await Promise.all(
      [`${service.mount}/stats`, `${service.mount}/presence`, "/health"].map((path) =>
        get(path, { signal }).catch((error) => error),
      ),
    );
    if (signal.aborted) return;
    const count = stats.connections ?? {};
    replace(
      open,
      facts([
        ["Server-sent events", stats.connections ? number(count.sse ?? 0) : "–"],
        ["WebSocket", stats.connections ? number(count.websocket ?? 0) : "–"],
        ["Long polls", stats.connections ? number(count.poll ?? 0) : "–"],
        ["Position of the log", health.position == null ? "–" : number(health.position)],
      ]),
    );
    if (presence instanceof Problem)
      replace(online, padded(h("p", { class: "muted" }, presence.message)));
    else
      replace(
        online,
        presence.data?.length
          ? table({
              label: "Online",
              rows: presence.data,
              columns: [
                { title: "User", cell: (one) => one.user },
                { title: "Connections", num: true, cell: (one) => number(one.connections) },
                { title: "Since", cell: (one) => time(one.since) },
              ],
            })
          : padded(
              h(
                "p",
                { class: "muted" },
                "Nobody is online. A connection with a channel token that names a user appears here.",
              ),
            ),
      );
    do await sleep(REFRESH_MS, signal);
    while (document.hidden);
  }
}

function client(context) {
  const { service, signal } = context;
  const channel = select(
    [
      ["sse", "Server-sent events"],
      ["ws", "WebSocket"],
    ],
    "sse",
  );
  const types = h("input", {
    type: "text",
    placeholder: "all, or order.*, message",
    list: "live-types",
    autocomplete: "off",
  });
  const since = h("input", {
    type: "text",
    placeholder: "now",
    autocomplete: "off",
    class: "mono",
  });
  const user = h("input", { type: "text", placeholder: "nobody", autocomplete: "off" });
  const state = h(
    "span",
    { class: "row small muted", role: "status" },
    h("span", { class: "dot" }),
    "Not connected",
  );
  const log = h("ol", { class: "timeline" });
  const send = h("form", { class: "row", hidden: true });
  let stop = null;
  let resets = 0;
  const say = (word, tone) =>
    replace(
      state,
      h("span", { class: `dot ${tone ?? ""}` }),
      word,
      resets ? ` · ${resets} resets` : "",
    );
  const add = (type, position, data) => {
    if (type === "stream.reset" || type === "presence.reset") resets += 1;
    if (position && type !== "ack") since.value = position;
    log.prepend(
      h(
        "li",
        {},
        h("span", {}, type),
        " ",
        position && h("span", { class: "id muted" }, position),
        h("details", {}, h("summary", { class: "small" }, "Data"), json(data)),
      ),
    );
    while (log.childElementCount > KEPT) log.lastChild.remove();
  };
  const go = h("button", { type: "submit", class: "primary" }, "Connect");
  const toggle = async (event) => {
    event.preventDefault();
    if (stop) return stop();
    const ended = new AbortController();
    signal.addEventListener("abort", () => ended.abort(), { once: true });
    stop = () => {
      ended.abort();
      stop = null;
      go.textContent = "Connect";
      send.hidden = true;
      say("Not connected");
    };
    go.textContent = "Disconnect";
    say("Connecting…", "warn");
    const options = {
      types: types.value.trim() || null,
      since: since.value.trim() || null,
      signal: ended.signal,
      add,
      say,
    };
    if (channel.value === "sse") listen(context, options, stop);
    else connect(context, { ...options, user: user.value.trim() || null, send }, stop);
  };
  const form = h(
    "form",
    { onsubmit: toggle },
    h(
      "div",
      { class: "grid" },
      h("div", { class: "w6" }, labelled("Channel", channel)),
      h("div", { class: "w6" }, labelled("Types", types)),
      h("div", { class: "w6" }, labelled("After position", since)),
      h("div", { class: "w6" }, labelled("User (WebSocket)", user)),
    ),
    h(
      "datalist",
      { id: "live-types" },
      service.eventTypes.map((type) => h("option", { value: type })),
    ),
    h("div", { class: "row" }, go, state),
  );
  return h(
    "div",
    { class: "stack" },
    card("Try a channel", padded(form, h("br"), send)),
    card(
      "Messages",
      padded(
        log,
        h("p", { class: "muted small" }, "Connect, then change a record: its event appears here."),
      ),
    ),
  );
}

function listen({ service }, { types, since, signal, add, say }, stop) {
  follow(service.stream, {
    types,
    since,
    signal,
    onevent: (event) => {
      let data = event.data;
      try {
        data = JSON.parse(event.data);
      } catch {
        // Shown as it came.
      }
      add(event.type, event.id, data);
    },
    onstate: (now) => {
      if (!(now instanceof Problem))
        return say(now === "open" ? "Open" : "Reconnecting…", now === "open" ? "ok" : "warn");
      stop();
      tell(now);
    },
  });
}

/** Browsers cannot send a key with a WebSocket: it opens with a short-lived channel token. */
async function connect({ service }, { types, since, user, signal, add, say, send }, stop) {
  const wanted = service.document.components?.schemas?.ChannelTokenRequest?.properties?.publish;
  const publish = resolve(service.document, resolve(service.document, wanted).items).enum ?? [];
  let token;
  try {
    const body = { publish, expires_in: 3600 };
    if (user) body.user = user;
    token = (
      await write("POST", `${service.mount}/channel-tokens`, {
        body,
        what: "Create a channel token for live data?",
      })
    ).data.token;
  } catch (error) {
    stop();
    return tell(error);
  }
  if (signal.aborted) return;
  const url = new URL(service.socket, location.origin);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  if (types) url.searchParams.set("types", types);
  if (since) url.searchParams.set("since", since);
  const socket = new WebSocket(url, ["restive.v1", `access_token.${token}`]);
  signal.addEventListener("abort", () => socket.close(), { once: true });
  socket.onopen = () => {
    say("Open", "ok");
    draw(send, socket, publish, add);
  };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    add(message.type, message.position, message.data ?? message);
  };
  socket.onclose = ({ code: closed, reason }) => {
    if (signal.aborted) return;
    add("closed", null, { code: closed, reason });
    stop();
  };
}

function draw(place, socket, publish, add) {
  const text = h("input", {
    type: "text",
    "aria-label": "Message",
    class: "mono grow",
    value: JSON.stringify({
      type: publish[0] ?? "ping",
      ...(publish[0] ? { ref: "m1", data: { text: "hello" } } : {}),
    }),
  });
  place.onsubmit = async (event) => {
    event.preventDefault();
    if (
      session.live &&
      (await dialog({
        title: "Send to live data?",
        body: h("p", {}, text.value),
        actions: (close) =>
          h("button", { type: "button", class: "primary", onclick: () => close(true) }, "Send"),
      })) !== true
    )
      return;
    if (socket.readyState === WebSocket.OPEN) socket.send(text.value);
    else add("not sent", null, text.value);
  };
  replace(place, text, h("button", { type: "submit" }, "Send"));
  place.hidden = false;
}
