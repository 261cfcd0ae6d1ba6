// A receiver of webhooks in Node, with the libraries that consumers use. The one argument is the
// folder that has them in its node_modules.
//
// Reads one case per line of stdin, as JSON: family (stripe, standardwebhooks, svix or github),
// secret, headers and body. Prints one line per case: `ok`, or `error: ` and the message of the library.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.argv[2], "package.json"));
const Stripe = require("stripe");
const standardwebhooks = require("standardwebhooks");
const svix = require("svix");

// The key is for API calls, which this script does not make.
const stripe = new Stripe("sk_test_none");

const families = {
  stripe: (secret, headers, body) =>
    stripe.webhooks.constructEvent(body, headers["restive-signature"], secret),
  standardwebhooks: (secret, headers, body) =>
    new standardwebhooks.Webhook(secret).verify(body, headers),
  svix: (secret, headers, body) => new svix.Webhook(secret).verify(body, headers),
  github: (secret, headers, body) => {
    const digest = createHmac("sha256", secret).update(body).digest("hex");
    const expected = Buffer.from(`sha256=${digest}`);
    const given = Buffer.from(headers["x-hub-signature-256"]);
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw new Error("signatures differ");
    }
  },
};

function verdict(line) {
  const { family, secret, headers, body } = JSON.parse(line);
  const verify = families[family];
  if (!verify) {
    throw new Error(`no such family: ${family}`);
  }
  const entries = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
  try {
    verify(secret, Object.fromEntries(entries), body);
  } catch (error) {
    // Any exception of a library means that its user would not trust the request.
    return `error: ${error.name}: ${error.message}`.replaceAll("\n", " ");
  }
  return "ok";
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(verdict(line));
}
