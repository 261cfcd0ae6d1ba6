// The packed follower in Chromium: every event once, while the server is killed and started again.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { Client } from "restive-client";

import { KEY, Server, eventually, library } from "./harness.mjs";

/** Runs in the page. */
async function follow([url, token, channels]) {
  const { Client } = await import(
    URL.createObjectURL(new Blob([window.source], { type: "text/javascript" }))
  );
  window.heard = Object.fromEntries(channels.map((channel) => [channel, []]));
  window.opened = 0;
  const client = new Client({ url });
  for (const channel of channels) {
    const onState = ({ state }) => (window.opened += state === "open" ? 1 : 0);
    const options = { channel, types: ["message"], feed: "messages", token: () => token, onState };
    (async () => {
      for await (const { data } of client.follow(options)) window.heard[channel].push(data.text);
    })();
  }
}

test("a page receives every event once on each channel", { timeout: 60_000 }, async () => {
  const server = await Server.start();
  const client = new Client({ url: server.url, key: KEY, maxRetries: 20 });
  const body = { user: "ann", types: ["message"], expires_in: 600 };
  const { token } = await client.post("/v1/channel-tokens", body);
  const { chromium } = library("playwright-core");
  const args = ["--no-sandbox"];
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
  try {
    const page = await browser.newPage();
    await page.goto(`${server.url}/health`);
    const source = readFileSync(join(import.meta.dirname, "../restive-client.min.js"), "utf8");
    await page.evaluate((source) => (window.source = source), source);
    const channels = ["sse", "websocket", "poll"];
    await page.evaluate(follow, [server.url, token, channels]);
    await eventually(() => page.evaluate("opened >= 3"), "all channels are open");
    const written = [];
    for (let number = 0; number < 30; number += 1) {
      if (number === 10 || number === 20) await server.kill().then(() => server.start());
      await client.post("/v1/messages", { from: "ann", text: `${number}` });
      written.push(`${number}`);
    }
    const isDone = "Object.values(heard).every((texts) => texts.at(-1) === '29')";
    await eventually(() => page.evaluate(isDone), "the last message");
    const heard = await page.evaluate("heard");
    for (const channel of channels) assert.deepEqual(heard[channel], written, channel);
  } finally {
    await browser.close();
    await server.kill();
  }
});
