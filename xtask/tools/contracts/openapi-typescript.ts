// A client from openapi-typescript and openapi-fetch: creates, lists and pages without a cast.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Book = components["schemas"]["Book"];

const client = createClient<paths>({
  baseUrl: process.env.URL!,
  headers: { Authorization: `Bearer ${process.env.KEY}` },
});

for (const title of ["one", "two", "three"]) {
  const { data, error } = await client.POST("/v1/books", { body: { title, author: "openapi-fetch" } });
  if (error) throw new Error(error.error.code);
  const book: Book = data;
  if (book.title !== title) throw new Error(`created ${book.title}`);
}
const found: string[] = [];
let after: string | null | undefined;
do {
  const query = { author: "openapi-fetch", limit: 2, sort: ["title" as const], ...(after ? { after } : {}) };
  const { data, error } = await client.GET("/v1/books", { params: { query } });
  if (error) throw new Error(error.error.message);
  found.push(...data.data.map((book) => book.title));
  after = data.pagination.next_cursor;
} while (after);
if (found.join() !== "one,three,two") throw new Error(found.join());
const { error } = await client.POST("/v1/books", { body: { title: "", author: "x".repeat(100_000) } });
if (error?.error.code !== "validation_failed") throw new Error(JSON.stringify(error));
