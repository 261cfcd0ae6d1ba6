// The console in Firefox: every screen opens, a record is created, hostile text runs nothing. Firefox
// is driven over WebDriver BiDi, which the distribution's Firefox speaks without another program.
//
//     node --experimental-websocket firefox.mjs PROGRAM URL KEY
//
// PROGRAM is Firefox. URL is the server, whose database is empty. KEY may do everything in test mode.
// Prints {"errors": […], "screens": {hash: heading}, "created": n, "pwned": null}.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [program, url, key] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "restive-firefox-"));
const options = ["--headless", "--remote-debugging-port=0", "--no-remote", "--profile", profile];
const firefox = spawn(program, options, { stdio: ["ignore", "ignore", "pipe"] });
const seen = { errors: [], screens: {}, created: 0, pwned: null };

/** The address of the BiDi server, which Firefox prints. */
async function address() {
  for await (const line of createInterface({ input: firefox.stderr })) {
    const found = /WebDriver BiDi listening on (ws:\S+)/.exec(line);
    if (found) return found[1];
  }
  throw new Error("Firefox did not start");
}

const socket = new WebSocket(`${await address()}/session`);
const waiting = new Map();
let number = 0;
socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  const isError = message.method === "log.entryAdded" && message.params.level === "error";
  if (isError) seen.errors.push(message.params.text);
  const call = waiting.get(message.id);
  waiting.delete(message.id);
  if (message.type === "error") call?.reject(new Error(`${message.error}: ${message.message}`));
  else call?.resolve(message.result);
};
await new Promise((resolve) => (socket.onopen = resolve));

function send(method, params = {}) {
  number += 1;
  socket.send(JSON.stringify({ id: number, method, params }));
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
}

await send("session.new", { capabilities: {} });
await send("session.subscribe", { events: ["log.entryAdded"] });
const { contexts } = await send("browsingContext.getTree");
const { context } = contexts[0];

/** Runs an expression in the page, as JSON. */
async function run(expression) {
  const wrapped = `(async () => JSON.stringify((await (${expression})) ?? null))()`;
  const target = { context };
  const answer = await send("script.evaluate", { expression: wrapped, target, awaitPromise: true });
  if (answer.type === "exception")
    throw new Error(`${expression}: ${answer.exceptionDetails.text}`);
  return JSON.parse(answer.result.value);
}

/** Waits until an expression is true. */
async function until(expression) {
  const deadline = Date.now() + 20_000;
  while (!(await run(expression))) {
    if (Date.now() > deadline) {
      throw new Error(
        `never true: ${expression}; the page says: ${await run("document.body.innerText.slice(0, 400)")}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const type = (selector, text) =>
  run(
    `((input) => { input.value = ${JSON.stringify(text)}; input.dispatchEvent(new Event("change", { bubbles: true })); })(document.querySelector(${JSON.stringify(selector)}))`,
  );

try {
  await send("browsingContext.navigate", { context, url: `${url}/console`, wait: "complete" });
  await until('document.querySelector("#door input")');
  await type("#door input", key);
  await run('document.querySelector("#door button").click()');
  await until('document.querySelector("#main h1")');
  await run('void (location.hash = "#/records/books")');
  await until('document.querySelector("#main .primary")');
  await run('document.querySelector("#main .primary").click()');
  await until('document.querySelector("dialog [name=title]")');
  await type(
    "dialog [name=title]",
    '"><img src=x onerror="window.pwned=1"><script>window.pwned=2</script>',
  );
  await type("dialog [name=author]", "<b onclick=window.pwned=3>");
  await run('document.querySelector("dialog button[type=submit]").click()');
  await until('document.querySelector("#main .timeline a")?.textContent === "book.created"');
  for (const name of [
    "home",
    "records",
    "records/books",
    "events",
    "webhooks",
    "webhooks/deliveries",
    "webhooks/replays",
    "webhooks/doctor",
    "live",
    "requests",
    "versions",
    "schema",
    "keys",
    "explorer",
  ]) {
    await run(`void (location.hash = "#/${name}")`);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await until('document.querySelector("#main h1")');
    seen.screens[name] = await run('document.querySelector("#main h1").textContent');
  }
  seen.pwned = await run("window.pwned");
  seen.created = await run(
    `fetch("/v1/books", { headers: { Authorization: "Bearer ${key}" } }).then((answer) => answer.json()).then((list) => list.data.length)`,
  );
  console.log(JSON.stringify(seen));
} finally {
  const ended = new Promise((resolve) => firefox.once("exit", resolve));
  socket.close();
  firefox.kill();
  await ended;
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
