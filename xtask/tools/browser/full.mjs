// An EventSource, on a page of another origin, whose server has no room for it.
//
//     full.mjs TOOLS URL TOKEN
//
// TOOLS is the folder with node_modules. URL is the server, TOKEN a channel token for it. Prints a
// line for each event: "open", "again" (cut off, will reconnect), "closed" (will not reconnect), the
// text of a message. Ends with one of the last two, or after a minute.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const [tools, url, token] = process.argv.slice(2);
const { chromium } = createRequire(`${tools}/`)("playwright-core");
setTimeout(() => process.exit(1), 60_000);
const elsewhere = createServer((_, response) => response.end("a page")).listen(0, "127.0.0.1");
await new Promise((resolve) => elsewhere.once("listening", resolve));
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--ignore-certificate-errors"],
});
const page = await browser.newPage({ ignoreHTTPSErrors: true });
await page.goto(`http://127.0.0.1:${elsewhere.address().port}/`);
const heard = new Promise((resolve) =>
  page.exposeFunction("tell", (what, isLast) => {
    console.log(what);
    if (isLast) resolve();
  }),
);
await page.waitForFunction("window.tell");
await page.evaluate(
  ([url, token]) => {
    const query = `types=message&access_token=${encodeURIComponent(token)}`;
    const events = new EventSource(`${url}/api/events?${query}`);
    events.onopen = () => tell("open", false);
    events.onmessage = (event) => tell(JSON.parse(event.data).text, true);
    events.onerror = () => {
      const isClosed = events.readyState === EventSource.CLOSED;
      tell(isClosed ? "closed" : "again", isClosed);
    };
  },
  [url, token],
);
await heard;
await browser.close();
process.exit(0);
