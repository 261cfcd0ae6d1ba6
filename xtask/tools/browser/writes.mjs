// The console in Chromium writes only what a person asked for: forms of records and keys, a server
// that is away, a key that ended, two clicks; and it holds no connection in a hidden tab.
//
//     writes.mjs TOOLS URL KEY LIVE OTHER
//
// TOOLS is the folder with node_modules. URL is a server with the collection `notes`. KEY may do
// everything in test mode, LIVE is its account's key of live mode, OTHER a test key of another
// account. Prints a JSON object with what was seen.
import { createRequire } from "node:module";

const [tools, url, key, live, other] = process.argv.slice(2);
const { chromium } = createRequire(`${tools}/`)("playwright-core");
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const page = await browser.newPage({ reducedMotion: "reduce" });
page.setDefaultTimeout(15_000);
/** Longer than the first pause before a request is sent again. */
const LONGER_THAN_A_PAUSE_MS = 900;

const seen = { errors: [] };
page.on("pageerror", (error) => seen.errors.push(`${error.message} ${error.stack}`));
const writes = [];
page.on("request", (request) => {
  if (request.method() === "GET" || request.url().endsWith("/login")) return;
  const body = request.postData();
  const path = new URL(request.url()).pathname;
  const used = request.headers().authorization?.replace("Bearer ", "");
  writes.push({ method: request.method(), path, used, body: body ? JSON.parse(body) : null });
});
const sent = (method, path) =>
  writes.filter((one) => one.method === method && one.path.startsWith(path));

async function call(method, path, body) {
  const response = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  return response.json();
}

const main = page.locator("#main");
const form = page.locator("dialog").first();
const press = (name) => page.getByRole("button", { name, exact: true }).last().click();
const heading = (name) => page.getByRole("heading", { name }).waitFor();
const closed = () => page.locator("dialog").first().waitFor({ state: "detached" });
const go = (hash) => page.evaluate((to) => (location.hash = to), hash);
const until = async (condition) => {
  for (const end = Date.now() + 15_000; !(await condition());)
    if (Date.now() > end) throw new Error(`never: ${condition}`);
    else await new Promise((resolve) => setTimeout(resolve, 50));
};
async function signIn(secret) {
  await page.getByLabel("API key").fill(secret);
  await press("Sign in");
  await main.locator("h1").waitFor();
}

await page.goto(`${url}/console`);
await signIn(key);

// An edit sends only what was changed, whatever the inputs make of the other values.
const notes = [
  { title: "One", text: "a\r\nb", tags: ["red, blue", "green"] },
  { title: "Two", text: "", tags: [] },
  { title: "Three", text: "2026-11-18T12:00:00 door opened", tags: [" a ", "b\nc"] },
];
for (const note of notes) note.id = (await call("POST", "/v1/notes", note)).id;
for (const note of notes) {
  await go(`#/records/notes/${note.id}`);
  await main.getByText(note.title, { exact: true }).waitFor();
  await press("Edit");
  await form.getByLabel("title").fill(`${note.title} again`);
  await press("Save");
  await closed();
}
await go(`#/records/notes/${notes[0].id}`);
await main.getByText("One again", { exact: true }).first().waitFor();
await press("Edit");
await form.getByLabel("tags").fill("red, blue\nyellow");
await press("Save");
await closed();
seen.edits = sent("PATCH", "/v1/notes").map((one) => one.body);

// A number that a browser would change is not written, and the rest of the record is.
const large = '{"title":"Numbers","data":{"n":9007199254740993,"d":1},"weight":42}';
const made = await fetch(`${url}/v1/notes`, {
  method: "POST",
  headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
  body: large,
});
const { id: numbers } = await made.json();
await go(`#/records/notes/${numbers}`);
await main.getByText("Numbers", { exact: true }).first().waitFor();
await press("Edit");
await form.getByLabel("title").fill("Exact");
await press("Save");
await closed();
await press("Edit");
const data = form.getByLabel("data");
await data.fill((await data.inputValue()).replace('"d": 1', '"d": 2'));
await form.getByLabel("weight").fill("1e400");
await press("Save");
await form.locator('[name="weight"][aria-invalid="true"]').waitFor();
seen.inexact = await form.locator(".wrong:not(:empty)").allTextContents();
await press("Cancel");
await press("Discard");
seen.exact = await (
  await fetch(`${url}/v1/notes/${numbers}`, { headers: { Authorization: `Bearer ${key}` } })
).text();

// A text that begins like a time is shown, in the table and on the page.
await go("#/records/notes");
await main.getByText("door opened").waitFor();
await go(`#/records/notes/${notes[2].id}`);
await main.locator("dd").getByText("door opened").waitFor();

// A write that was cancelled while the server was away is not sent when it is back, and the banner
// does not stay for it.
await page.route("**/v1/notes", (route) =>
  route.request().method() === "POST" ? route.abort() : route.continue(),
);
await go("#/records/notes");
await press("New note");
await form.getByLabel("title").fill("Cancelled");
await press("Create");
await page.locator("#banner:not([hidden])").waitFor();
await press("Cancel");
await press("Stop");
await closed();
await page.locator("#banner").waitFor({ state: "hidden" });
await page.unroute("**/v1/notes");
await page.waitForTimeout(LONGER_THAN_A_PAUSE_MS);
seen.cancelled = (await call("GET", "/v1/notes?title=Cancelled")).data.length;

// A key that ended: the write is not repeated with the next key, which is of the same account and
// mode.
writes.length = 0;
const refuse = { status: 401, json: { error: { code: "invalid_api_key", message: "It ended." } } };
await page.route("**/v1/notes", (route) => route.fulfill(refuse));
await press("New note");
await form.getByLabel("title").fill("With another key");
await press("Create");
await heading("This key no longer works");
await page.unroute("**/v1/notes");
seen.refused = [];
const narrow = await call("POST", "/v1/keys", { name: "narrow", scopes: ["notes:write"] });
for (const wrong of [live, other, "sk_test_…", narrow.secret]) {
  await page.getByLabel("API key").last().fill(wrong);
  await press("Continue");
  // The message of the key before stays until this one was looked at.
  const message = () => page.locator("dialog .wrong[role=alert]").textContent();
  await until(async () => ![seen.refused.at(-1) ?? "", ""].includes(await message()));
  seen.refused.push(await message());
}
await page.getByLabel("API key").last().fill(key);
await press("Continue");
await form.getByText("Nothing was written").waitFor();
await page.waitForTimeout(LONGER_THAN_A_PAUSE_MS);
seen.unrepeated = sent("POST", "/v1/notes").length;
await press("Create");
await closed();
seen.repeated = sent("POST", "/v1/notes").map((one) => one.used === key);

// A person who gives no other key is not asked again by what the page reads.
await page.route("**/v1/stats", (route) => route.fulfill(refuse));
await go("#/home");
await heading("This key no longer works");
await press("Cancel");
await main.getByText("No figures").waitFor();
const refusal = page.waitForResponse("**/v1/stats");
await go("#/live");
await refusal;
await main.getByText("Position of the log").waitFor();
seen.asked = await page.locator("dialog").count();
await page.unroute("**/v1/stats");

// A write that waits for the server ends when somebody else signs in.
await page.route(`**/v1/notes/${notes[1].id}`, (route) =>
  route.request().method() === "DELETE" ? route.abort() : route.continue(),
);
await go(`#/records/notes/${notes[1].id}`);
await main.getByText("Two again", { exact: true }).first().waitFor();
await press("Delete");
await press("Delete");
await page.locator("#banner:not([hidden])").waitFor();
await press("Sign out");
await page.getByText("not sent again").waitFor();
await press("Close");
await signIn(live);
await page.unroute(`**/v1/notes/${notes[1].id}`);
await page.waitForTimeout(LONGER_THAN_A_PAUSE_MS);
seen.deletedAs = [...new Set(sent("DELETE", "/v1/notes").map((one) => one.used === key))];
await press("Sign out");
await signIn(key);

// Restrict: the form shows what the key may do at present, and sends what was changed.
const worker = await call("POST", "/v1/keys", { name: "worker", scopes: null });
const wide = await call("POST", "/v1/keys", { name: "wide", scopes: ["*:write"] });
await go("#/keys");
const row = (name) => main.getByRole("row", { name: new RegExp(name) });
await row("worker").waitFor();
await call("PATCH", `/v1/keys/${worker.id}`, { scopes: ["notes:read"] });
await row("worker").getByRole("button", { name: "Restrict" }).click();
await form.getByLabel("Name").fill("renamed");
await press("Save");
await closed();
await row("wide").getByRole("button", { name: "Restrict" }).click();
await form.getByLabel("*:write").uncheck();
await form.getByLabel("notes:read").check();
await press("Save");
await closed();
seen.restricted = sent("PATCH", "/v1/keys").map((one) => one.body);
seen.scopes = [];
for (const { id } of [worker, wide]) seen.scopes.push((await call("GET", `/v1/keys/${id}`)).scopes);

// Two clicks are one write. A secret that was lost is not an empty box.
let answer = null;
await page.route("**/roll", (route) => (answer = route));
await row("renamed").getByRole("button", { name: "Roll" }).click();
await form.getByText("The old key ends").waitFor();
await page.evaluate(() => {
  const rolled = document.querySelector("dialog form");
  rolled.requestSubmit();
  rolled.requestSubmit();
});
await until(() => answer);
await page.waitForTimeout(100);
seen.rolled = sent("POST", "/v1/keys").length;
await answer.fulfill({ status: 201, json: { object: "key", id: "key_1" } });
seen.lost = await form.getByRole("alert").textContent();
await press("Close");
await page.unroute("**/roll");

// A header that cannot be sent is an error, not a server that is away.
await go(`#/records/notes/${notes[0].id}?as=${encodeURIComponent("☃")}`);
await main.getByText("A header has a character").waitFor();
seen.banner = await page.locator("#banner").isVisible();

// The tail reads one list at a time, however many events come.
await go("#/events");
await main.getByText("Live", { exact: true }).first().waitFor();
const held = [];
let last = null;
let isHeld = true;
await page.route("**/v1/events?*", (route) => (isHeld ? held.push(route) : route.continue()));
for (const title of ["first", "second", "third"]) {
  last = (await call("POST", "/v1/notes", { title })).id;
  await until(() => held.length > 0);
  await page.waitForTimeout(600);
}
seen.reads = held.length;
isHeld = false;
for (const route of held) await route.continue();
await main.getByTitle(last).waitFor();
await page.unroute("**/v1/events?*");

// A hidden tab holds no connection, and reads what happened when it is shown again.
const hide = (hidden) =>
  page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
const connections = async () => (await call("GET", "/v1/stats")).connections.sse;
await until(async () => (await connections()) === 1);
await hide(true);
await until(async () => (await connections()) === 0);
const { id: unseen } = await call("POST", "/v1/notes", { title: "While hidden" });
await hide(false);
await main.getByTitle(unseen).waitFor();
await until(async () => (await connections()) === 1);

// What was typed is not lost without a question: Escape, reload, and Back under an open form.
await go("#/webhooks/endpoints");
await press("New endpoint");
await form.getByLabel("url").click();
await page.keyboard.type("http://127.0.0.1:9/");
await page.keyboard.press("Escape");
await heading("Discard what you typed?");
await press("Cancel");
const question = page.waitForEvent("dialog");
await page.evaluate(() => void setTimeout(() => location.reload()));
await question.then((dialog) => {
  seen.unload = dialog.type();
  return dialog.dismiss();
});
seen.typed = await form.getByLabel("url").inputValue();
await press("Cancel");
await press("Discard");
await go("#/records/notes");
await main.getByText("One again").click();
await press("Edit");
await form.getByLabel("title").fill("One, later");
await page.evaluate(() => history.back());
await main.getByText("records on this page").waitFor();
await press("Save");
await closed();
await page.getByText("Saved.").waitFor();
seen.list = await main.getByText("records on this page").count();

console.log(JSON.stringify(seen));
await browser.close();
