// The messages that a page receives while its server restarts: an EventSource, which reconnects
// automatically, and a WebSocket, which the page opens again from its last position.
//
//     live.mjs TOOLS URL TOKEN LAST
//
// TOOLS is the folder with node_modules. URL is the server, TOKEN a channel token for it. Ends when
// both channels have received a message with the text LAST. Prints a line "open" once both channels
// are, then {"stream": [texts…], "socket": [texts…], "streamOpened": n, "socketOpened": n}.
import { createRequire } from "node:module";

const [tools, url, token, last] = process.argv.slice(2);
const { chromium } = createRequire(`${tools}/`)("playwright-core");
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--ignore-certificate-errors"],
});
const page = await browser.newPage({ ignoreHTTPSErrors: true });
await page.goto(`${url}/health`);
await page.evaluate(
  ([token, last]) => {
    const heard = { stream: [], socket: [], streamOpened: 0, socketOpened: 0 };
    window.heard = heard;
    const query = `types=message&access_token=${encodeURIComponent(token)}`;
    const events = new EventSource(`/api/events?${query}`);
    events.onopen = () => (heard.streamOpened += 1);
    events.addEventListener("message", (event) => heard.stream.push(JSON.parse(event.data).text));
    events.addEventListener("stream.reset", () => heard.stream.push("reset"));
    let position = "";
    const connect = () => {
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      const since = position && `&since=${position}`;
      const socket = new WebSocket(`${scheme}://${location.host}/ws?${query}${since}`);
      socket.onopen = () => (heard.socketOpened += 1);
      socket.onmessage = (event) => {
        const message = JSON.parse(event.data);
        position = message.position ?? position;
        if (message.type === "message") heard.socket.push(message.data.text);
        if (message.type === "stream.reset") heard.socket.push("reset");
      };
      socket.onclose = () => heard.socket.at(-1) !== last && setTimeout(connect, 100);
    };
    connect();
  },
  [token, last],
);
const wait = { timeout: 60_000, polling: 20 };
await page.waitForFunction("heard.streamOpened > 0 && heard.socketOpened > 0", null, wait);
console.log("open");
const isDone = (last) => heard.stream.at(-1) === last && heard.socket.at(-1) === last;
await page.waitForFunction(isDone, last, wait);
console.log(JSON.stringify(await page.evaluate("heard")));
await browser.close();
