// Uses the client that `restive generate typescript` writes for the bookshop. Compiled with all
// strict options; the lines after `@ts-expect-error` must not compile.

import { Bookshop, type Book, type BookshopEvent, type Order } from "./bookshop.js";

/** Uses every kind of operation against a server, and returns what it saw. */
export async function use(url: string, key: string): Promise<Record<string, unknown>> {
  const shop = new Bookshop({ url, key });
  const author = `Tolkien, J. R. R. "${Date.now()}"`;
  for (const title of ["A", "B", "C"]) await shop.books.create({ title, author });
  const titles: string[] = [];
  for await (const book of shop.books.list({ author, sort: "-title", limit: 2 })) {
    titles.push(book.title);
  }
  const [first, second] = await shop.books.list({ author, sort: ["title"] }).toArray();
  if (!first || !second) throw new Error("there are no books");
  const priced: Book = await shop.books.update(first.id, { price: 12.5 });
  const bounded = await shop.books.list({ author, min_price: 12, max_price: 13 });
  const unpriced = await shop.books.list({ author: [author, "nobody"], price: null });
  const review = await shop.books.reviews(first.id).create({ rating: 5 });
  const reviewed = await shop.books.get(first.id, { expand: ["reviews"] });
  const order: Order = await shop.orders.create({ book: first.id, quantity: 2 });
  const expanded = await shop.orders.get(order.id, { expand: ["book"] });
  const cancelled = await shop.orders.cancel(order.id, { reason: "late" });
  const open = await shop.orders.list({ status: ["created", "paid"], book: first.id });
  await shop.messages.create({ from: "ann", text: "hello" });
  const polled = await shop.messages.poll({ since: 0 });
  await shop.books.delete(second.id);
  return {
    titles,
    price: priced.price,
    bounded: bounded.data.map(({ title }) => title),
    unpriced: unpriced.data.map(({ title }) => title).sort(),
    rating: [review.rating, review.book === first.id],
    reviews: reviewed.reviews.data.map(({ rating }) => rating),
    ordered: expanded.book.title,
    status: [order.status, cancelled.status, cancelled.cancel_reason],
    open: open.data.length,
    polled: polled.at(-1)?.text,
  };
}

/** The type of the first message that follows an action of the caller. */
export async function firstMessage(url: string, key: string, since: string): Promise<string> {
  const shop = new Bookshop({ url, key });
  for await (const message of shop.follow({ since })) {
    switch (message.type) {
      case "message":
        return `a message: ${message.data.text}`;
      case "book.created":
        return `a book: ${message.data.data.object.title}`;
    }
  }
  return "nothing";
}

export function describe(event: BookshopEvent): string | undefined {
  switch (event.type) {
    case "book.updated":
      return event.data.previous_attributes?.title;
    case "report.ready":
      return String(event.data.object["rows"]);
    case "order.paid":
      return event.data.object.erased ? undefined : event.data.object.status;
    default:
      return event.type;
  }
}

/** Never called: mistakes that the compiler must find. */
export async function mistakes(shop: Bookshop, order: Order, event: BookshopEvent): Promise<void> {
  // @ts-expect-error: there is no such filter
  shop.books.list({ colour: "red" });
  // @ts-expect-error: there is no such state
  shop.orders.list({ status: "nonsense" });
  // @ts-expect-error: books cannot be sorted by it
  shop.books.list({ sort: "isbn" });
  // @ts-expect-error: `author` is missing
  await shop.books.create({ title: "Dune" });
  // @ts-expect-error: only actions change the state
  await shop.orders.update(order.id, { status: "paid" });
  // @ts-expect-error: without `expand`, it is an id
  order.book.title;
  // @ts-expect-error: the price may be null
  (await shop.books.get("book_1")).price.toFixed();
  // @ts-expect-error: messages cannot be deleted
  await shop.messages.delete(1);
  // @ts-expect-error: a new book has no previous attributes
  if (event.type === "book.created") event.data.previous_attributes;
}
