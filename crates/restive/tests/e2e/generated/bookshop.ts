// Made by `restive generate typescript` for the service bookshop, version 2026-11-01. Do not edit:
// generate it again when the schema changes.

import {
  Client,
  path,
  type ClientOptions,
  type FollowOptions,
  type List,
  type RequestOptions,
  type WriteOptions,
} from "restive-client";

/** A filter: one value or several. `null` finds records without a value. */
export type Filter<T> = T | null | readonly (T | null)[];

/** An order: the name of a field, with `-` before it for descending. */
export type Sort<K extends string> = K | `-${K}` | readonly (K | `-${K}`)[];

/** Children that are embedded in a record: the newest of them. */
export interface Embedded<T> {
  object: "list";
  url: string;
  data: T[];
  pagination: { next_cursor: string | null; has_more: boolean };
}

/** A record with embedded ones in place of their ids. */
export type With<T, X, E extends keyof X> = Omit<T, E> & Pick<X, E>;

/** A record in an event. */
export type InEvent<T> = T & {
  /** The record was erased: only `id` and `object` are there. */
  erased?: true;
};

/** What the shop sells. */
export interface Book {
  id: string;
  object: "book";
  title: string;
  author: string;
  /** In the shop's currency. */
  price: number | null;
  /** ISBN-10 or ISBN-13, with or without hyphens. */
  isbn: string | null;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in a Book. */
export interface BookExpansions {
  reviews: Embedded<Review>;
}

/** A new book. */
export interface BookCreate {
  title: string;
  author: string;
  /** In the shop's currency. */
  price?: number | null;
  /** ISBN-10 or ISBN-13, with or without hyphens. */
  isbn?: string | null;
}

/** The fields to change; null clears a field. */
export interface BookUpdate {
  title?: string;
  author?: string;
  /** In the shop's currency. */
  price?: number | null;
  /** ISBN-10 or ISBN-13, with or without hyphens. */
  isbn?: string | null;
}

export interface BookQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  title?: Filter<string>;
  author?: Filter<string>;
  price?: Filter<number>;
  isbn?: Filter<string>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_price?: number;
  max_price?: number;
  /** Words that must all occur in the record. */
  q?: string;
  sort?: Sort<"created_at" | "updated_at" | "title" | "author" | "price">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `books`. */
export class Books {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof BookExpansions = never>(
    query: BookQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<Book, BookExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof BookExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<Book, BookExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** Creates a record. */
  create(body: BookCreate, options?: WriteOptions): Promise<Book> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: BookCreate, options?: WriteOptions): Promise<Book> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: BookUpdate, options?: WriteOptions): Promise<Book> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }

  /** The `reviews` of one record. */
  reviews(id: string): Reviews {
    return new Reviews(this.client, this.path + path`/${id}/reviews`);
  }
}

export type OrderStatus = "created" | "paid" | "shipped" | "cancelled";

/** A customer's order of a book. */
export interface Order {
  id: string;
  object: "order";
  /** The ordered book. */
  book: string;
  quantity: number | null;
  /** Set by the action `cancel`. */
  cancel_reason: string | null;
  /** The state; changed by actions. */
  status: OrderStatus;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in an Order. */
export interface OrderExpansions {
  book: Book;
}

/** A new order. */
export interface OrderCreate {
  /** The ordered book. */
  book: string;
  quantity?: number | null;
}

/** The fields to change; null clears a field. */
export interface OrderUpdate {
  /** The ordered book. */
  book?: string;
  quantity?: number | null;
}

/** Parameters of `cancel`. */
export interface OrderCancelParams {
  reason?: string | null;
}

export interface OrderQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  book?: Filter<string>;
  quantity?: Filter<number>;
  status?: Filter<OrderStatus>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_quantity?: number;
  max_quantity?: number;
  sort?: Sort<"created_at" | "updated_at" | "quantity">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `orders`. */
export class Orders {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof OrderExpansions = never>(
    query: OrderQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<Order, OrderExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof OrderExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<Order, OrderExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** Creates a record. */
  create(body: OrderCreate, options?: WriteOptions): Promise<Order> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: OrderCreate, options?: WriteOptions): Promise<Order> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: OrderUpdate, options?: WriteOptions): Promise<Order> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }

  /** Runs the action `pay`. */
  pay(id: string, options?: WriteOptions): Promise<Order> {
    return this.client.post(this.path + path`/${id}/pay`, undefined, options);
  }

  /** Runs the action `ship`. */
  ship(id: string, options?: WriteOptions): Promise<Order> {
    return this.client.post(this.path + path`/${id}/ship`, undefined, options);
  }

  /** Runs the action `cancel`. */
  cancel(id: string, params: OrderCancelParams = {}, options?: WriteOptions): Promise<Order> {
    return this.client.post(this.path + path`/${id}/cancel`, params, options);
  }
}

export type PaymentIntentStatus = "requires_payment_method" | "processing" | "succeeded" | "canceled";

export type PaymentIntentCancelReason = "duplicate" | "fraudulent" | "requested_by_customer" | "abandoned";

/** A payment in progress. */
export interface PaymentIntent {
  id: string;
  object: "payment_intent";
  /** In the smallest unit of the currency. */
  amount: number;
  /** ISO 4217 code in lower case. */
  currency: string;
  /** pm_card_visa succeeds, pm_card_declined does not. */
  payment_method: string | null;
  last_payment_error: Record<string, unknown> | null;
  cancellation_reason: string | null;
  /** The state; changed by actions. */
  status: PaymentIntentStatus;
  created_at: string;
  updated_at: string;
}

/** A new payment intent. */
export interface PaymentIntentCreate {
  /** In the smallest unit of the currency. */
  amount: number;
  /** ISO 4217 code in lower case. */
  currency: string;
  /** pm_card_visa succeeds, pm_card_declined does not. */
  payment_method?: string | null;
}

/** The fields to change; null clears a field. */
export interface PaymentIntentUpdate {
  /** In the smallest unit of the currency. */
  amount?: number;
  /** ISO 4217 code in lower case. */
  currency?: string;
  /** pm_card_visa succeeds, pm_card_declined does not. */
  payment_method?: string | null;
}

/** Parameters of `confirm`. */
export interface PaymentIntentConfirmParams {
  payment_method?: string | null;
}

/** Parameters of `cancel`. */
export interface PaymentIntentCancelParams {
  reason?: PaymentIntentCancelReason | null;
}

export interface PaymentIntentQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  amount?: Filter<number>;
  currency?: Filter<string>;
  status?: Filter<PaymentIntentStatus>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_amount?: number;
  max_amount?: number;
  sort?: Sort<"created_at" | "updated_at" | "amount">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `payment-intents`. */
export class PaymentIntents {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: PaymentIntentQuery = {}, options?: RequestOptions): List<PaymentIntent> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<PaymentIntent> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }

  /** Creates a record. */
  create(body: PaymentIntentCreate, options?: WriteOptions): Promise<PaymentIntent> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: PaymentIntentCreate, options?: WriteOptions): Promise<PaymentIntent> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: PaymentIntentUpdate, options?: WriteOptions): Promise<PaymentIntent> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }

  /** Starts the payment, with the payment method of the record or the one sent along. */
  confirm(
    id: string,
    params: PaymentIntentConfirmParams = {},
    options?: WriteOptions,
  ): Promise<PaymentIntent> {
    return this.client.post(this.path + path`/${id}/confirm`, params, options);
  }

  /** Runs the action `cancel`. */
  cancel(
    id: string,
    params: PaymentIntentCancelParams = {},
    options?: WriteOptions,
  ): Promise<PaymentIntent> {
    return this.client.post(this.path + path`/${id}/cancel`, params, options);
  }
}

/** A chat that can be polled, streamed and written to. */
export interface Message {
  id: number;
  object: "message";
  from: string | null;
  text: string;
  created_at: string;
  updated_at: string;
}

/** A new message. */
export interface MessageCreate {
  from?: string | null;
  text: string;
}

export interface MessageQuery {
  id?: Filter<number>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  from?: Filter<string>;
  min_id?: number;
  max_id?: number;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  sort?: Sort<"created_at" | "updated_at">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `messages`. */
export class Messages {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: MessageQuery = {}, options?: RequestOptions): List<Message> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: number, options?: RequestOptions): Promise<Message> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }

  /** Creates a record. */
  create(body: MessageCreate, options?: WriteOptions): Promise<Message> {
    return this.client.post(this.path, body, options);
  }

  /** The records after a position, oldest first; with `wait`, as soon as there are some. */
  poll(
    query: { since?: number | string; wait?: boolean; limit?: number } = {},
    options?: RequestOptions,
  ): Promise<Message[]> {
    return this.client.get("/api/messages", query, options);
  }
}

/** What readers say about a book. */
export interface Review {
  id: string;
  object: "review";
  /** The book this belongs to, from the path. */
  book: string;
  rating: number;
  text: string | null;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in a Review. */
export interface ReviewExpansions {
  book: Book;
}

/** A new review. */
export interface ReviewCreate {
  rating: number;
  text?: string | null;
}

/** The fields to change; null clears a field. */
export interface ReviewUpdate {
  rating?: number;
  text?: string | null;
}

export interface ReviewQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  book?: Filter<string>;
  rating?: Filter<number>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_rating?: number;
  max_rating?: number;
  /** Words that must all occur in the record. */
  q?: string;
  sort?: Sort<"created_at" | "updated_at" | "rating">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `reviews`. */
export class Reviews {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof ReviewExpansions = never>(
    query: ReviewQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<Review, ReviewExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof ReviewExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<Review, ReviewExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** Creates a record. */
  create(body: ReviewCreate, options?: WriteOptions): Promise<Review> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: ReviewCreate, options?: WriteOptions): Promise<Review> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: ReviewUpdate, options?: WriteOptions): Promise<Review> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }
}

export interface Envelope<K extends string, D> {
  /** The same each time the event is sent: skip ids that you have processed. */
  id: string;
  object: "event";
  type: K;
  api_version: string;
  /** Unix time in seconds. */
  created: number;
  livemode: boolean;
  pending_webhooks: number;
  data: D;
  request: { id: string | null; idempotency_key: string | null };
}

export interface Data<T> {
  object: InEvent<T>;
}

export interface Change<T> extends Data<T> {
  /** Old values of the fields that changed. */
  previous_attributes?: Partial<T>;
}

/** The event `book.created`. */
export type BookCreatedEvent = Envelope<"book.created", Data<Book>>;

/** The event `book.deleted`. */
export type BookDeletedEvent = Envelope<"book.deleted", Data<Book>>;

/** The event `book.updated`. */
export type BookUpdatedEvent = Envelope<"book.updated", Change<Book>>;

/** The event `message.created`. */
export type MessageCreatedEvent = Envelope<"message.created", Data<Message>>;

/** The event `order.cancelled`. */
export type OrderCancelledEvent = Envelope<"order.cancelled", Change<Order>>;

/** The event `order.created`. */
export type OrderCreatedEvent = Envelope<"order.created", Data<Order>>;

/** The event `order.deleted`. */
export type OrderDeletedEvent = Envelope<"order.deleted", Data<Order>>;

/** The event `order.paid`. */
export type OrderPaidEvent = Envelope<"order.paid", Change<Order>>;

/** The event `order.shipped`. */
export type OrderShippedEvent = Envelope<"order.shipped", Change<Order>>;

/** The event `order.updated`. */
export type OrderUpdatedEvent = Envelope<"order.updated", Change<Order>>;

/** The event `payment_intent.canceled`. */
export type PaymentIntentCanceledEvent = Envelope<"payment_intent.canceled", Change<PaymentIntent>>;

/** The event `payment_intent.created`. */
export type PaymentIntentCreatedEvent = Envelope<"payment_intent.created", Data<PaymentIntent>>;

/** The event `payment_intent.deleted`. */
export type PaymentIntentDeletedEvent = Envelope<"payment_intent.deleted", Data<PaymentIntent>>;

/** The event `payment_intent.payment_failed`. */
export type PaymentIntentPaymentFailedEvent = Envelope<"payment_intent.payment_failed", Change<PaymentIntent>>;

/** The event `payment_intent.processing`. */
export type PaymentIntentProcessingEvent = Envelope<"payment_intent.processing", Change<PaymentIntent>>;

/** The event `payment_intent.succeeded`. */
export type PaymentIntentSucceededEvent = Envelope<"payment_intent.succeeded", Change<PaymentIntent>>;

/** The event `payment_intent.updated`. */
export type PaymentIntentUpdatedEvent = Envelope<"payment_intent.updated", Change<PaymentIntent>>;

/** A report was created. */
export type ReportReadyEvent = Envelope<"report.ready", Change<Record<string, unknown>>>;

/** The event `review.created`. */
export type ReviewCreatedEvent = Envelope<"review.created", Data<Review>>;

/** The event `review.deleted`. */
export type ReviewDeletedEvent = Envelope<"review.deleted", Data<Review>>;

/** The event `review.updated`. */
export type ReviewUpdatedEvent = Envelope<"review.updated", Change<Review>>;

/** Every event, told apart by `type`: in webhooks and in the log. */
export type BookshopEvent =
  | BookCreatedEvent
  | BookDeletedEvent
  | BookUpdatedEvent
  | MessageCreatedEvent
  | OrderCancelledEvent
  | OrderCreatedEvent
  | OrderDeletedEvent
  | OrderPaidEvent
  | OrderShippedEvent
  | OrderUpdatedEvent
  | PaymentIntentCanceledEvent
  | PaymentIntentCreatedEvent
  | PaymentIntentDeletedEvent
  | PaymentIntentPaymentFailedEvent
  | PaymentIntentProcessingEvent
  | PaymentIntentSucceededEvent
  | PaymentIntentUpdatedEvent
  | ReportReadyEvent
  | ReviewCreatedEvent
  | ReviewDeletedEvent
  | ReviewUpdatedEvent;

/** Every message of the live channels that is in the log, told apart by `type`. */
export type BookshopMessage =
  | { type: "book.created"; data: BookCreatedEvent; position: string }
  | { type: "book.deleted"; data: BookDeletedEvent; position: string }
  | { type: "book.updated"; data: BookUpdatedEvent; position: string }
  | { type: "message"; data: InEvent<Message>; position: string }
  | { type: "order.cancelled"; data: OrderCancelledEvent; position: string }
  | { type: "order.created"; data: OrderCreatedEvent; position: string }
  | { type: "order.deleted"; data: OrderDeletedEvent; position: string }
  | { type: "order.paid"; data: OrderPaidEvent; position: string }
  | { type: "order.shipped"; data: OrderShippedEvent; position: string }
  | { type: "order.updated"; data: OrderUpdatedEvent; position: string }
  | { type: "payment_intent.canceled"; data: PaymentIntentCanceledEvent; position: string }
  | { type: "payment_intent.created"; data: PaymentIntentCreatedEvent; position: string }
  | { type: "payment_intent.deleted"; data: PaymentIntentDeletedEvent; position: string }
  | { type: "payment_intent.payment_failed"; data: PaymentIntentPaymentFailedEvent; position: string }
  | { type: "payment_intent.processing"; data: PaymentIntentProcessingEvent; position: string }
  | { type: "payment_intent.succeeded"; data: PaymentIntentSucceededEvent; position: string }
  | { type: "payment_intent.updated"; data: PaymentIntentUpdatedEvent; position: string }
  | { type: "report.ready"; data: ReportReadyEvent; position: string }
  | { type: "review.created"; data: ReviewCreatedEvent; position: string }
  | { type: "review.deleted"; data: ReviewDeletedEvent; position: string }
  | { type: "review.updated"; data: ReviewUpdatedEvent; position: string };

/** The client of the service. */
export class Bookshop {
  /** For requests that have no method here. */
  readonly client: Client;
  readonly books: Books;
  readonly orders: Orders;
  readonly paymentIntents: PaymentIntents;
  readonly messages: Messages;

  constructor(options: ClientOptions) {
    this.client = new Client({ version: "2026-11-01", ...options });
    this.books = new Books(this.client, "/v1/books");
    this.orders = new Orders(this.client, "/v1/orders");
    this.paymentIntents = new PaymentIntents(this.client, "/v1/payment-intents");
    this.messages = new Messages(this.client, "/v1/messages");
  }

  /** Every committed change, as it happens. Ignore types that you do not know. */
  follow(options?: FollowOptions): AsyncIterable<BookshopMessage> {
    return this.client.follow(options) as AsyncIterable<unknown> as AsyncIterable<BookshopMessage>;
  }
}
