// A client from @hey-api/openapi-ts: creates, lists and pages without a cast.
import { createBook, listBooks } from "./hey/index.js";
import { client } from "./hey/client.gen.js";

client.setConfig({ baseUrl: process.env.URL!, auth: () => process.env.KEY! });

for (const title of ["one", "two", "three"]) {
  const { data } = await createBook({ body: { title, author: "hey-api" }, throwOnError: true });
  if (data.title !== title) throw new Error(`created ${data.title}`);
}
const found: string[] = [];
let after: string | null | undefined;
do {
  const query = { author: "hey-api", limit: 2, sort: ["title" as const], ...(after ? { after } : {}) };
  const { data } = await listBooks({ query, throwOnError: true });
  found.push(...data.data.map((book) => book.title));
  after = data.pagination.next_cursor;
} while (after);
if (found.join() !== "one,three,two") throw new Error(found.join());
