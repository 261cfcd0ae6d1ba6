// Which versions of HTTP a browser uses, page by page: it begins with the version that TLS negotiates
// and switches to HTTP/3 once Alt-Svc has announced it.
//
//     versions.mjs TOOLS PORT CERTIFICATE PAGES
//
// TOOLS is the folder with node_modules. The server is called shop.example, and its certificate (a
// PEM file) is the one that is trusted.
// Prints {"versions": ["h2", …, "h3"], "status": 200}, ended by the first h3 or after PAGES pages.
import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [tools, port, certificate, pages] = process.argv.slice(2);
const { chromium } = createRequire(`${tools}/`)("playwright-core");
const key = new X509Certificate(readFileSync(certificate)).publicKey;
const pin = createHash("sha256").update(key.export({ type: "spki", format: "der" }));
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--host-resolver-rules=MAP shop.example 127.0.0.1",
    `--ignore-certificate-errors-spki-list=${pin.digest("base64")}`,
    // QUIC requires a publicly known authority, except for hosts named here. The port is another
    // one, so that HTTP/3 is not forced: Alt-Svc must announce it.
    "--origin-to-force-quic-on=shop.example:1",
  ],
});
const page = await browser.newPage();
const versions = [];
let status = 0;
for (let visit = 0; visit < Number(pages) && versions.at(-1) !== "h3"; visit += 1) {
  const answer = await page.goto(`https://shop.example:${port}/health?visit=${visit}`);
  status = answer.status();
  const entry = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
  versions.push(await page.evaluate(entry));
}
await browser.close();
console.log(JSON.stringify({ versions, status }));
