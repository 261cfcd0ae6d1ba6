// The console in Chromium: every screen, every write, hostile records, a restart in mid-edit.
//
//     console.mjs TOOLS URL KEY RESTRICTED LIVE LOGIN
//
// TOOLS is the folder with node_modules. URL is the server. KEY may do everything in test mode,
// RESTRICTED may only read books, LIVE is a key of live mode, LOGIN a one-time token. Prints "stop" when the server shall be
// stopped and started again, then a JSON object with what was seen.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";

const [tools, url, key, restricted, live, login] = process.argv.slice(2);
const require = createRequire(`${tools}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const seen = { errors: [], axe: [], visits: {}, shift: 0 };
const WAIT = 15_000;

const context = await browser.newContext({
  viewport: { width: 1280, height: 860 },
  reducedMotion: "reduce",
});
context.setDefaultTimeout(WAIT);
const page = await open(context);

/** A page whose errors are collected. Refused requests are expected and are no errors of the page. */
async function open(from) {
  const made = await from.newPage();
  made.on("console", (message) => {
    const refused =
      /^Failed to load resource: (the server responded with a status of 4|net::ERR_CONNECTION|net::ERR_INCOMPLETE|net::ERR_EMPTY)/;
    if (message.type() === "error" && !refused.test(message.text()))
      seen.errors.push(message.text());
  });
  made.on("pageerror", (error) => seen.errors.push(`${error.message} ${error.stack}`));
  made.on("dialog", (dialog) => {
    seen.errors.push(`a dialog of the browser: ${dialog.message()}`);
    dialog.dismiss();
  });
  await made.addInitScript(() => {
    window.shift = 0;
    const add = (list) =>
      list.getEntries().forEach((entry) => !entry.hadRecentInput && (window.shift += entry.value));
    new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  });
  return made;
}

async function call(method, path, body, headers = {}) {
  const response = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  return response.json();
}

const go = async (hash) => {
  await page.evaluate((to) => (location.hash = to), hash);
  await page.waitForTimeout(50);
};
const main = () => page.locator("#main");
const shows = (text) => page.getByText(text).first().waitFor();
const press = (name) => page.getByRole("button", { name, exact: true }).last().click();

/** Bytes and requests of a first visit to a screen, with an empty cache. */
async function visit(name, hash) {
  const fresh = await browser.newContext({ viewport: { width: 1280, height: 860 } });
  const one = await open(fresh);
  await one.addInitScript((secret) => sessionStorage.setItem("restive.key", secret), key);
  const session = await fresh.newCDPSession(one);
  await session.send("Network.enable");
  let [bytes, requests] = [0, 0];
  session.on("Network.requestWillBeSent", () => (requests += 1));
  session.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  await one.goto(`${url}/console${hash}`);
  await one.locator("#main h1").waitFor();
  await one.waitForLoadState("load");
  await one.waitForTimeout(500);
  seen.visits[name] = { bytes, requests, shift: await one.evaluate("window.shift") };
  await fresh.close();
}

async function audit(name) {
  if (!(await page.evaluate("Boolean(window.axe)"))) await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.violations.filter(
    (one) => one.impact === "serious" || one.impact === "critical",
  );
  seen.axe.push(...serious.map((one) => `${name}: ${one.id}: ${one.nodes[0].html.slice(0, 120)}`));
}

// A receiver for webhooks.
const receiver = createServer((request, response) =>
  request.resume().on("end", () => response.end("{}")),
).listen(0, "127.0.0.1");
await new Promise((resolve) => receiver.once("listening", resolve));
const hook = `http://127.0.0.1:${receiver.address().port}/hook`;

// The printed link signs in, once; the token does not stay in the address.
const first = await browser.newContext();
const link = await open(first);
await link.goto(`${url}/console#login=${login}`);
await link.locator("#main h1").waitFor();
seen.address = await link.evaluate("location.href");
// To sign out ends the key that the link made.
const made = await link.evaluate(() => sessionStorage.getItem("restive.key"));
await link.getByRole("button", { name: "Sign out" }).click();
while (!seen.signedOut) {
  const late = await call("GET", "/v1/account", undefined, { Authorization: `Bearer ${made}` });
  seen.signedOut = late.error?.code;
}
await link.goto("about:blank");
await link.goto(`${url}/console#login=${login}`);
seen.used = await link.locator(".wrong:not(:empty)").textContent();
await first.close();

// Sign in: first with a wrong key.
await page.goto(`${url}/console`);
await page.getByLabel("API key").fill("sk_test_wrong");
await press("Sign in");
await page.locator(".wrong:not(:empty)").waitFor();
await audit("sign-in");
await page.getByLabel("API key").fill(key);
await press("Sign in");
await page.locator("#main h1").waitFor();

// Create: the error of the API stands beside its field, and what was typed stays.
await go("#/records/books");
await page.getByText("No books yet").waitFor();
await press("New book");
await page.getByLabel("author").fill("Frank Herbert");
await page.getByLabel("price").fill("-1");
await press("Create");
await page.locator('[name="title"][aria-invalid="true"]').waitFor();
seen.besideField = await page.locator('.field:has([name="price"]) .wrong').textContent();
await audit("form");
await page.getByLabel("title").fill("Dune");
await page.getByLabel("price").fill("9.5");
await press("Create");
await page.getByText("book.created").waitFor();
const book = decodeURIComponent((await page.evaluate("location.hash")).split("/").at(-1));

// Edit while somebody else changes the record.
await press("Edit");
await page.getByLabel("title").fill("Dune Messiah");
await call("PATCH", `/v1/books/${book}`, { price: 11 });
await press("Save");
await page.getByRole("heading", { name: "Changed meanwhile" }).waitFor();
seen.kept = await page.getByLabel("title").inputValue();
await press("Save");
await page.locator("dialog").waitFor({ state: "detached" });
seen.saved = await call("GET", `/v1/books/${book}`);

// An action by state, a reference as a link.
const order = await call("POST", "/v1/orders", { book });
await go(`#/records/orders/${order.id}`);
await main().getByRole("link", { name: book }).waitFor();
await main().getByRole("button", { name: "pay" }).click();
await press("pay");
await main().getByText("order.paid").waitFor();
seen.order = (await call("GET", `/v1/orders/${order.id}`)).status;

// Webhooks: create, ping, rotate, retry, replay.
await go("#/webhooks/endpoints");
await press("New endpoint");
await page.getByLabel("url").fill(hook);
await press("Create");
await page.locator("dialog").getByText("whsec_").waitFor();
await press("Close");
await main().getByRole("button", { name: "Send ping" }).click();
await page.getByRole("heading", { name: "The ping arrived" }).waitFor();
await audit("ping");
await press("Close");
await main().getByRole("button", { name: "Rotate secret" }).click();
await press("Rotate");
await page.locator("dialog").getByText("whsec_").waitFor();
await press("Close");
await main().getByRole("button", { name: "Disable" }).click();
await main().getByRole("button", { name: "Enable" }).click();
await main().getByRole("button", { name: "Replay…" }).click();
await press("Start");
await main().getByRole("link", { name: "Replays" }).waitFor();
await main().locator("progress").first().waitFor();
await main().getByText("succeeded", { exact: true }).first().waitFor();
const delivery = (await call("GET", "/v1/deliveries")).data.at(-1);
await go(`#/webhooks/deliveries/${delivery.id}`);
await main().getByRole("button", { name: "Send again" }).click();
await main().getByRole("heading", { name: "Attempt 2" }).waitFor();
await audit("delivery");

// The signature doctor, with a signature that the console computes itself elsewhere.
await go("#/webhooks/doctor");
seen.doctor = await page.evaluate(async () => {
  const { diagnose } = await import("/console/doctor.js");
  const secret = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
  const key = await crypto.subtle.importKey(
    "raw",
    new TextEncoder().encode(secret),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["sign"],
  );
  const sign = async (text) =>
    Array.from(
      new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text))),
      (byte) => byte.toString(16).padStart(2, "0"),
    ).join("");
  const header = `Restive-Signature: t=1000,v1=${await sign('1000.{"a":1}')}`;
  const check = async (...given) => (await diagnose(...given))[0];
  return [
    (await check(header, '{"a":1}', secret, 1001)).ok,
    (await check(header, '{"a": 1}', secret, 1001)).text,
    (await check(header, '{"a":1}', ` "${secret}" `, 1001)).text,
    (await check(header, '{"a":1}', secret, 9000)).text,
  ];
});

// Keys: create a restricted one, roll it, revoke its successor.
await go("#/keys");
await press("New key");
const form = page.locator("dialog");
await form.getByLabel("Name").fill("worker");
await form.getByLabel("May use").selectOption("some");
await form.getByLabel("books:read").check();
await audit("new key");
await press("Create");
await form.getByText("rk_test_").waitFor();
await press("Close");
const worker = main().getByRole("row", { name: /worker/ });
await worker.first().getByRole("button", { name: "Roll" }).click();
await press("Roll");
await form.getByText("rk_test_").waitFor();
await press("Close");
await worker.nth(1).waitFor();
await worker.first().getByRole("button", { name: "Revoke" }).click();
await press("Revoke");
await worker.getByText("revoked", { exact: true }).waitFor();
seen.keys = (await call("GET", "/v1/keys")).data
  .filter((one) => one.name === "worker")
  .map((one) => [one.scopes, one.revoked_at !== null]);

// The requests so far, and the page of one that was refused.
await go("#/requests?code=validation_failed");
await main()
  .getByRole("button", { name: /POST .v1.books/ })
  .first()
  .click();
await form.getByText("validation_failed").waitFor();
await press("Close");
await go("#/home");
await main().getByText("Errors by code and route").waitFor();
await main().getByText("validation_failed").first().waitFor();

// Explorer, with the code of the request.
await go("#/explorer/listBooks");
await main().getByRole("button", { name: "Send" }).click();
await main().getByText('"list"').waitFor();
await main().getByRole("tab", { name: "Python" }).click();
await main().getByText("urllib.request").first().waitFor();

// Records that contain markup run nothing, wherever they are shown.
const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=2</script>\u202Eabc`;
const bad = await call("POST", "/v1/books", {
  title: evil,
  author: `javascript:window.pwned=3//${"x".repeat(150)}`,
});
await call("POST", `/v1/books/${bad.id}/reviews`, {
  rating: 1,
  text: `<svg onload="window.pwned=4">${"long ".repeat(900)}`,
});
await call("POST", "/v1/messages", { from: evil.slice(0, 90), text: evil });
await call("POST", "/v1/orders", { book: bad.id });
const places = [
  "#/home",
  "#/records",
  "#/records/books",
  `#/records/books/${bad.id}`,
  `#/records/books/${bad.id}/reviews`,
  "#/records/messages",
  "#/records/orders?book=" + encodeURIComponent(evil),
  `#/records/books?q=${encodeURIComponent(evil)}`,
  "#/events",
  "#/webhooks",
  "#/webhooks/deliveries",
  "#/live",
  "#/requests",
  "#/versions",
  "#/schema",
  "#/keys",
  "#/explorer",
  `#/explorer/getBook?book_id=${encodeURIComponent(evil)}`,
  "#/nowhere",
  "#/records/%ff",
];
for (const hash of places) {
  await go(hash);
  await page.locator("#main h1, #main h2").first().waitFor();
  await page.waitForTimeout(150);
  // Each screen once: the audit takes longer than all the rest.
  if (/^#.[a-z]+$|.records.books.book/.test(hash)) await audit(hash);
}
seen.pwned = (await page.evaluate("window.pwned")) ?? null;

// Delete; the page of the deleted record still has its timeline.
await go(`#/records/orders`);
for (const one of (await call("GET", "/v1/orders")).data)
  await call("DELETE", `/v1/orders/${one.id}`);
await go(`#/records/books/${bad.id}`);
await main().getByRole("button", { name: "Delete" }).click();
await press("Delete");
await shows(/Deleted book_/);
await go(`#/records/books/${bad.id}`);
await main().getByText("book.deleted").waitFor();

// The server goes away in mid-edit: what was typed is sent when it is back. The tail resumes.
await go("#/events");
await main().getByText("Live", { exact: true }).waitFor();
const tail = await open(context);
await tail.addInitScript((secret) => sessionStorage.setItem("restive.key", secret), key);
await tail.goto(`${url}/console#/events`);
await tail.locator("#main").getByText("Live", { exact: true }).waitFor();
await go("#/records/books");
await press("New book");
await page.getByLabel("title").fill("Written while away");
await page.getByLabel("author").fill("Nobody");
console.log("stop");
const isAway = async () => {
  for (;;) {
    const up = await fetch(`${url}/health`).then(
      () => true,
      () => false,
    );
    if (!up) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};
await isAway();
await press("Create");
await page.locator("#banner:not([hidden])").waitFor();
seen.banner = await page.locator("#banner").textContent();
console.log("start");
await page.getByText("book.created").waitFor({ timeout: 30_000 });
await page.locator("#banner").waitFor({ state: "hidden" });
seen.away = (await call("GET", "/v1/books?title=Written%20while%20away")).data.length;
await tail.locator("#main").getByText("Live", { exact: true }).waitFor({ timeout: 30_000 });
await call("POST", "/v1/messages", { text: "after the restart" });
await tail.locator("#main tbody tr").first().getByText("message.created").waitFor();
await tail.close();

// A restricted key sees what it may, and a calm sentence elsewhere. Live mode asks before a write.
const as = async (secret, hash) => {
  await page.evaluate((one) => sessionStorage.setItem("restive.key", one), secret);
  await page.goto("about:blank");
  await page.goto(`${url}/console${hash}`);
  await page.locator("#main h1, #main h2").first().waitFor();
};
await as(restricted, "#/records/books");
await main().getByText("Dune Messiah").waitFor();
await as(restricted, "#/records/orders");
seen.restricted = await main().getByRole("alert").first().textContent();
await as(live, "#/records/books");
await press("New book");
await page.getByLabel("title").fill("Live");
await page.getByLabel("author").fill("Live");
await press("Create");
seen.asked = await page.getByRole("heading", { name: "Create a live book?" }).textContent();
await press("Cancel");
seen.declined = (
  await fetch(`${url}/v1/books`, { headers: { Authorization: `Bearer ${live}` } }).then(
    (response) => response.json(),
  )
).data.length;

// Dark, and narrow: nothing is wider than the screen.
await page.keyboard.press("Escape");
await press("Discard");
for (const [scheme, width] of [
  ["dark", 1280],
  ["light", 375],
]) {
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize({ width, height: 800 });
  for (const hash of [
    "#/home",
    "#/records/books",
    `#/records/books/${book}`,
    "#/webhooks",
    "#/schema",
    "#/explorer",
  ]) {
    await as(key, hash);
    await page.waitForTimeout(150);
    if (scheme === "dark" && hash.length < 20) await audit(`dark ${hash}`);
    seen.wide = Math.max(
      seen.wide ?? 0,
      await page.evaluate("document.documentElement.scrollWidth - innerWidth"),
    );
  }
}
for (const [name, hash] of [
  ["home", "#/home"],
  ["records", "#/records/books"],
  ["record", `#/records/books/${book}`],
  ["events", "#/events"],
  ["webhooks", "#/webhooks"],
  ["explorer", "#/explorer"],
])
  await visit(name, hash);
console.log(JSON.stringify(seen));
receiver.close();
await browser.close();
