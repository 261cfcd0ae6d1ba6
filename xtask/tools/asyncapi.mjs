// Checks an AsyncAPI document with the parser of the AsyncAPI initiative. The arguments are the folder
// that has it in its node_modules, and the document. Prints every finding; exits with 1 if there are any.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [tools, file] = process.argv.slice(2);
const { Parser } = createRequire(resolve(tools, "package.json"))("@asyncapi/parser");
// What a service cannot know (the operators' address), and the newest 3.x, which few tools read.
const UNWANTED = ["asyncapi-latest-version", "asyncapi-info-contact-properties", "asyncapi-id"];

const { document, diagnostics } = await new Parser().parse(readFileSync(file, "utf8"));
const findings = diagnostics.filter(({ code }) => !UNWANTED.includes(code));
for (const { code, path, message } of findings) {
  console.error(`${path.join("/")}: ${message} (${code})`);
}
const channels = document?.channels().all().length ?? 0;
const operations = document?.operations().all().length ?? 0;
console.log(`    ${channels} channels, ${operations} operations, ${findings.length} findings`);
process.exitCode = document && findings.length === 0 ? 0 : 1;
