// The client that `restive generate typescript` writes: it compiles with all strict options, for the
// bookshop and for hostile names, and works against the real server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { KEY, Server } from "./harness.mjs";

const folder = join(dirname(fileURLToPath(import.meta.url)), "generated");
const modules = join(process.env.RESTIVE_TOOLS, "node", "node_modules");
const root = dirname(dirname(process.env.RESTIVE_VECTORS));
const hostile = join(root, "crates/restive/tests/e2e/generated/hostile.toml");
const STRICT = [
  "--strict",
  "--exactOptionalPropertyTypes",
  "--noUncheckedIndexedAccess",
  "--noImplicitOverride",
  "--noUnusedLocals",
  "--noUnusedParameters",
  "--verbatimModuleSyntax",
];
let used;

function generate(...args) {
  execFileSync(process.env.RESTIVE_BIN, ["generate", "typescript", ...args], { cwd: folder });
}

function run(program, args) {
  try {
    execFileSync(program, args, { cwd: folder, encoding: "utf8", timeout: 120_000 });
  } catch (error) {
    assert.fail(`${error.stdout}${error.stderr}`);
  }
}

before(async () => {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  generate("--out", "bookshop.ts");
  generate("--schema", hostile, "--out", "hostile.ts");
  const files = readdirSync(folder).filter((name) => name.endsWith(".ts"));
  const target = ["--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022,DOM"];
  const types = ["--types", "node", "--typeRoots", join(modules, "@types")];
  run(join(modules, ".bin", "tsc"), [...STRICT, ...target, ...types, "--outDir", "built", ...files]);
  used = await import(pathToFileURL(join(folder, "built", "use.js")));
});

test("every operation of a generated client works against the real server", async () => {
  const server = await Server.start();
  assert.deepEqual(await used.use(server.url, KEY), {
    titles: ["C", "B", "A"],
    price: 12.5,
    bounded: ["A"],
    unpriced: ["B", "C"],
    rating: [5, true],
    reviews: [5],
    ordered: "A",
    status: ["created", "cancelled", "late"],
    open: 0,
    polled: "hello",
  });
  assert.equal(await used.firstMessage(server.url, KEY, "0"), "a book: A");
  await server.kill();
});

test("events are told apart by their type", () => {
  const data = { object: { status: "paid" }, previous_attributes: { title: "Dune" } };
  assert.equal(used.describe({ type: "book.updated", data }), "Dune");
  assert.equal(used.describe({ type: "order.paid", data }), "paid");
  assert.equal(used.describe({ type: "order.paid", data: { object: { erased: true } } }), undefined);
});
