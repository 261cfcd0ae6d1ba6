// Made by `restive generate typescript` for the service 2. "Äpfel" */ """ \, version 2026-01-01. Do
// not edit: generate it again when the schema changes.

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

export type EverythingChoice = "a\"b" | "c\\d" | "e,f" | "null" | "" | "ü" | "1" | "self" | "E f" | "e-f" | "\u{202e}\n*/";

export type EverythingCreateValue = "x";

/** A "quoted" description *\/ with \ a backslash. And a second line. */
export interface Everything {
  id: string;
  object: "everything";
  text: string;
  whole: number | null;
  real: number | null;
  flag: boolean | null;
  moment: string | null;
  day: string | null;
  free: Record<string, unknown> | null;
  texts: string[];
  moments: string[] | null;
  flags: boolean[] | null;
  shown: number | null;
  /** Use `text`. *\/ """ \ @deprecated */
  old: string | null;
  choice: EverythingChoice | null;
  create: EverythingCreateValue | null;
  itself: string | null;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in an Everything. */
export interface EverythingExpansions {
  itself: Everything | null;
}

/** A new everything. */
export interface EverythingCreate {
  text: string;
  whole?: number | null;
  real?: number | null;
  flag?: boolean | null;
  moment?: string | Date | null;
  day?: string | null;
  free?: Record<string, unknown> | null;
  texts: readonly string[];
  moments?: readonly (string | Date)[] | null;
  flags?: readonly boolean[] | null;
  hidden: string;
  /** Use `text`. *\/ """ \ @deprecated */
  old?: string | null;
  choice?: EverythingChoice | null;
  create?: EverythingCreateValue | null;
  itself?: string | null;
}

/** The fields to change; null clears a field. */
export interface EverythingUpdate {
  text?: string;
  whole?: number | null;
  real?: number | null;
  flag?: boolean | null;
  moment?: string | Date | null;
  day?: string | null;
  free?: Record<string, unknown> | null;
  texts?: readonly string[];
  moments?: readonly (string | Date)[] | null;
  flags?: readonly boolean[] | null;
  hidden?: string;
  /** Use `text`. *\/ """ \ @deprecated */
  old?: string | null;
  choice?: EverythingChoice | null;
  create?: EverythingCreateValue | null;
  itself?: string | null;
}

export interface EverythingQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  text?: Filter<string>;
  whole?: Filter<number>;
  real?: Filter<number>;
  flag?: Filter<boolean>;
  moment?: Filter<string | Date>;
  day?: Filter<string>;
  choice?: Filter<EverythingChoice>;
  itself?: Filter<string>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_whole?: number;
  max_whole?: number;
  min_real?: number;
  max_real?: number;
  min_moment?: string | Date;
  max_moment?: string | Date;
  min_day?: string;
  max_day?: string;
  /** Words that must all occur in the record. */
  q?: string;
  sort?: Sort<"created_at" | "updated_at" | "text" | "whole" | "moment">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `everythings`. */
export class Everythings {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof EverythingExpansions = never>(
    query: EverythingQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<Everything, EverythingExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof EverythingExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<Everything, EverythingExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** Creates a record. */
  create(body: EverythingCreate, options?: WriteOptions): Promise<Everything> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: EverythingCreate, options?: WriteOptions): Promise<Everything> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: EverythingUpdate, options?: WriteOptions): Promise<Everything> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }
}

export type KeywordStatus = "await" | "true" | "none";

export type KeywordImportFrom = "in";

export type KeywordMarkAsReadStatus = "a";

/** A record of `keywords`. */
export interface Keyword {
  id: string;
  object: "keyword";
  class: string;
  from: string | null;
  self: string | null;
  options: string | null;
  type: string | null;
  match: number | null;
  async: boolean | null;
  await: boolean | null;
  fn: boolean | null;
  crate: boolean | null;
  super: boolean | null;
  lambda: boolean | null;
  none: boolean | null;
  str: string | null;
  int: number | null;
  list: string[] | null;
  dict: Record<string, unknown> | null;
  constructor: string | null;
  default: string;
  query: string | null;
  /** The state; changed by actions. */
  status: KeywordStatus;
  created_at: string;
  updated_at: string;
}

/** A new keyword. */
export interface KeywordCreate {
  class: string;
  from?: string | null;
  self?: string | null;
  options?: string | null;
  type?: string | null;
  match?: number | null;
  async?: boolean | null;
  await?: boolean | null;
  fn?: boolean | null;
  crate?: boolean | null;
  super?: boolean | null;
  lambda?: boolean | null;
  none?: boolean | null;
  str?: string | null;
  int?: number | null;
  list?: readonly string[] | null;
  dict?: Record<string, unknown> | null;
  constructor?: string | null;
  default: string;
  query?: string | null;
}

/** The fields to change; null clears a field. */
export interface KeywordUpdate {
  class?: string;
  from?: string | null;
  self?: string | null;
  options?: string | null;
  type?: string | null;
  match?: number | null;
  async?: boolean | null;
  await?: boolean | null;
  fn?: boolean | null;
  crate?: boolean | null;
  super?: boolean | null;
  lambda?: boolean | null;
  none?: boolean | null;
  str?: string | null;
  int?: number | null;
  list?: readonly string[] | null;
  dict?: Record<string, unknown> | null;
  constructor?: string | null;
  default?: string;
  query?: string | null;
}

/** Parameters of `str`. */
export interface KeywordStrParams {
  dict?: Record<string, unknown> | null;
  str?: string | null;
}

/** Parameters of `import`. */
export interface KeywordImportParams {
  class: string;
  from?: KeywordImportFrom | null;
}

/** Parameters of `mark-as-read`. */
export interface KeywordMarkAsReadParams {
  self?: string | null;
  status?: KeywordMarkAsReadStatus | null;
}

export interface KeywordQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  class?: Filter<string>;
  from?: Filter<string>;
  self?: Filter<string>;
  options?: Filter<string>;
  type?: Filter<string>;
  match?: Filter<number>;
  query?: Filter<string>;
  status?: Filter<KeywordStatus>;
  min_created_at?: string | Date;
  max_created_at?: string | Date;
  min_updated_at?: string | Date;
  max_updated_at?: string | Date;
  min_match?: number;
  max_match?: number;
  sort?: Sort<"created_at" | "updated_at">;
  /** Records per page. */
  limit?: number;
  /** Number of an offset page, from 1. */
  page?: number;
  /** Cursor of a page. */
  after?: string;
}

/** The operations on `keywords`. */
export class Keywords {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: KeywordQuery = {}, options?: RequestOptions): List<Keyword> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<Keyword> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }

  /** Creates a record. */
  create(body: KeywordCreate, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path, body, options);
  }

  /** Replaces a record: fields that are omitted get their default or null. */
  replace(id: string, body: KeywordCreate, options?: WriteOptions): Promise<Keyword> {
    return this.client.put(this.path + path`/${id}`, body, options);
  }

  /** Changes some fields of a record. */
  update(id: string, changes: KeywordUpdate, options?: WriteOptions): Promise<Keyword> {
    return this.client.patch(this.path + path`/${id}`, changes, options);
  }

  /** Deletes a record. */
  delete(id: string, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.path + path`/${id}`, options);
  }

  /** Runs the action `delete`. */
  deleteAction(id: string, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/delete`, undefined, options);
  }

  /** Runs the action `list`. */
  listAction(id: string, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/list`, undefined, options);
  }

  /** Runs the action `str`. */
  str(id: string, params: KeywordStrParams = {}, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/str`, params, options);
  }

  /** Runs the action `dict`. */
  dict(id: string, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/dict`, undefined, options);
  }

  /** Runs the action `constructor`. */
  constructorAction(id: string, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/constructor`, undefined, options);
  }

  /** Runs the action `then`. */
  thenAction(id: string, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/then`, undefined, options);
  }

  /** Runs the action `import`. */
  import(id: string, params: KeywordImportParams, options?: WriteOptions): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/import`, params, options);
  }

  /** Runs the action `mark-as-read`. */
  markAsRead(
    id: string,
    params: KeywordMarkAsReadParams = {},
    options?: WriteOptions,
  ): Promise<Keyword> {
    return this.client.post(this.path + path`/${id}/mark-as-read`, params, options);
  }
}

/** A record of `clients`. */
export interface ClientRecord {
  id: string;
  object: "client";
  promise: string | null;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in a ClientRecord. */
export interface ClientRecordExpansions {
  promise: PromiseRecord | null;
  promises: Embedded<PromiseRecord>;
}

export interface ClientRecordQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  promise?: Filter<string>;
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

/** The operations on `clients`. */
export class Clients {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof ClientRecordExpansions = never>(
    query: ClientRecordQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<ClientRecord, ClientRecordExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof ClientRecordExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<ClientRecord, ClientRecordExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** The `promises` of one record. */
  promises(id: string): Promises {
    return new Promises(this.client, this.path + path`/${id}/promises`);
  }
}

/** A record of `post`. */
export interface RecordRecord {
  id: string;
  object: "record";
  created_at: string;
  updated_at: string;
}

export interface RecordRecordQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `post`. */
export class Post {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: RecordRecordQuery = {}, options?: RequestOptions): List<RecordRecord> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<RecordRecord> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `strings`. */
export interface StringRecord {
  id: string;
  object: "string";
  created_at: string;
  updated_at: string;
}

export interface StringRecordQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `strings`. */
export class Strings {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: StringRecordQuery = {}, options?: RequestOptions): List<StringRecord> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<StringRecord> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `options`. */
export interface Option {
  id: string;
  object: "option";
  created_at: string;
  updated_at: string;
}

export interface OptionQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `options`. */
export class Options {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: OptionQuery = {}, options?: RequestOptions): List<Option> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<Option> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `values`. */
export interface Value {
  id: string;
  object: "value";
  created_at: string;
  updated_at: string;
}

export interface ValueQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `values`. */
export class Values {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: ValueQuery = {}, options?: RequestOptions): List<Value> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<Value> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `async-clients`. */
export interface AsyncClient {
  id: string;
  object: "async_client";
  created_at: string;
  updated_at: string;
}

export interface AsyncClientQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `async-clients`. */
export class AsyncClientsCollection {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: AsyncClientQuery = {}, options?: RequestOptions): List<AsyncClient> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<AsyncClient> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `client-creates`. */
export interface ClientCreate {
  id: string;
  object: "client_create";
  created_at: string;
  updated_at: string;
}

export interface ClientCreateQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `client-creates`. */
export class ClientCreates {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: ClientCreateQuery = {}, options?: RequestOptions): List<ClientCreate> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<ClientCreate> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `sheep`. */
export interface Sheep {
  id: string;
  object: "sheep";
  created_at: string;
  updated_at: string;
}

export interface SheepQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** The operations on `sheep`. */
export class SheepCollection {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list(query: SheepQuery = {}, options?: RequestOptions): List<Sheep> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get(id: string, options?: RequestOptions): Promise<Sheep> {
    return this.client.get(this.path + path`/${id}`, {}, options);
  }
}

/** A record of `messages`. */
export interface Message {
  id: number;
  object: "message";
  text: string;
  created_at: string;
  updated_at: string;
}

/** A new message. */
export interface MessageCreate {
  text: string;
}

export interface MessageQuery {
  id?: Filter<number>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
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

/** A record of `promises`. */
export interface PromiseRecord {
  id: string;
  object: "promise";
  /** The client this belongs to, from the path. */
  client: string;
  text: string | null;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in a PromiseRecord. */
export interface PromiseRecordExpansions {
  client: ClientRecord;
  follow: Embedded<None>;
}

export interface PromiseRecordQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  client?: Filter<string>;
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

/** The operations on `promises`. */
export class Promises {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof PromiseRecordExpansions = never>(
    query: PromiseRecordQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<PromiseRecord, PromiseRecordExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof PromiseRecordExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<PromiseRecord, PromiseRecordExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
  }

  /** The `follow` of one record. */
  follow(id: string): Follow {
    return new Follow(this.client, this.path + path`/${id}/follow`);
  }
}

/** A record of `follow`. */
export interface None {
  id: string;
  object: "none";
  /** The promise this belongs to, from the path. */
  promise: string;
  created_at: string;
  updated_at: string;
}

/** What `expand` embeds in a None. */
export interface NoneExpansions {
  promise: PromiseRecord;
}

export interface NoneQuery {
  id?: Filter<string>;
  created_at?: Filter<string | Date>;
  updated_at?: Filter<string | Date>;
  promise?: Filter<string>;
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

/** The operations on `follow`. */
export class Follow {
  readonly client: Client;
  readonly path: string;

  constructor(client: Client, path: string) {
    this.client = client;
    this.path = path;
  }

  /** All records that match: `for await` reads them page by page, `await` reads one page. */
  list<E extends keyof NoneExpansions = never>(
    query: NoneQuery & { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): List<With<None, NoneExpansions, E>> {
    return this.client.list(this.path, query, options);
  }

  /** One record. */
  get<E extends keyof NoneExpansions = never>(
    id: string,
    query: { expand?: readonly E[] } = {},
    options?: RequestOptions,
  ): Promise<With<None, NoneExpansions, E>> {
    return this.client.get(this.path + path`/${id}`, query, options);
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

/** Begins with a digit. *\/ """ */
export type Event1a2bEvent = Envelope<"1a.2b", Change<Record<string, unknown>>>;

/** The event `a.b_c`, published by an application. */
export type ABCEvent = Envelope<"a.b_c", Change<Record<string, unknown>>>;

/** The event `a_b.c`, published by an application. */
export type ABCEvent2 = Envelope<"a_b.c", Change<Record<string, unknown>>>;

/** The event `everything.created`. */
export type EverythingCreatedEvent = Envelope<"everything.created", Data<Everything>>;

/** The event `everything.deleted`. */
export type EverythingDeletedEvent = Envelope<"everything.deleted", Data<Everything>>;

/** The event `everything.updated`. */
export type EverythingUpdatedEvent = Envelope<"everything.updated", Change<Everything>>;

/** The event `keyword.constructor`. */
export type KeywordConstructorEvent = Envelope<"keyword.constructor", Change<Keyword>>;

/** The event `keyword.created`. */
export type KeywordCreatedEvent = Envelope<"keyword.created", Data<Keyword>>;

/** The event `keyword.deleted`. */
export type KeywordDeletedEvent = Envelope<"keyword.deleted", Data<Keyword>>;

/** The event `keyword.dict`. */
export type KeywordDictEvent = Envelope<"keyword.dict", Change<Keyword>>;

/** The event `keyword.import`. */
export type KeywordImportEvent = Envelope<"keyword.import", Change<Keyword>>;

/** The event `keyword.list`. */
export type KeywordListEvent = Envelope<"keyword.list", Change<Keyword>>;

/** The event `keyword.mark_as_read`. */
export type KeywordMarkAsReadEvent = Envelope<"keyword.mark_as_read", Change<Keyword>>;

/** The event `keyword.str`. */
export type KeywordStrEvent = Envelope<"keyword.str", Change<Keyword>>;

/** The event `keyword.then`. */
export type KeywordThenEvent = Envelope<"keyword.then", Change<Keyword>>;

/** The event `keyword.true`. */
export type KeywordTrueEvent = Envelope<"keyword.true", Change<Keyword>>;

/** The event `keyword.updated`. */
export type KeywordUpdatedEvent = Envelope<"keyword.updated", Change<Keyword>>;

/** The event `message.created`. */
export type MessageCreatedEvent = Envelope<"message.created", Data<Message>>;

/** The event `message_created.event`, published by an application. */
export type MessageCreatedEventEvent = Envelope<"message_created.event", Change<Record<string, unknown>>>;

/** Every event, told apart by `type`: in webhooks and in the log. */
export type Service2PfelEvent =
  | Event1a2bEvent
  | ABCEvent
  | ABCEvent2
  | EverythingCreatedEvent
  | EverythingDeletedEvent
  | EverythingUpdatedEvent
  | KeywordConstructorEvent
  | KeywordCreatedEvent
  | KeywordDeletedEvent
  | KeywordDictEvent
  | KeywordImportEvent
  | KeywordListEvent
  | KeywordMarkAsReadEvent
  | KeywordStrEvent
  | KeywordThenEvent
  | KeywordTrueEvent
  | KeywordUpdatedEvent
  | MessageCreatedEvent
  | MessageCreatedEventEvent;

/** Every message of the live channels that is in the log, told apart by `type`. */
export type Service2PfelMessage =
  | { type: "1a.2b"; data: Event1a2bEvent; position: string }
  | { type: "a.b_c"; data: ABCEvent; position: string }
  | { type: "a_b.c"; data: ABCEvent2; position: string }
  | { type: "everything.created"; data: EverythingCreatedEvent; position: string }
  | { type: "everything.deleted"; data: EverythingDeletedEvent; position: string }
  | { type: "everything.updated"; data: EverythingUpdatedEvent; position: string }
  | { type: "keyword.constructor"; data: KeywordConstructorEvent; position: string }
  | { type: "keyword.created"; data: KeywordCreatedEvent; position: string }
  | { type: "keyword.deleted"; data: KeywordDeletedEvent; position: string }
  | { type: "keyword.dict"; data: KeywordDictEvent; position: string }
  | { type: "keyword.import"; data: KeywordImportEvent; position: string }
  | { type: "keyword.list"; data: KeywordListEvent; position: string }
  | { type: "keyword.mark_as_read"; data: KeywordMarkAsReadEvent; position: string }
  | { type: "keyword.str"; data: KeywordStrEvent; position: string }
  | { type: "keyword.then"; data: KeywordThenEvent; position: string }
  | { type: "keyword.true"; data: KeywordTrueEvent; position: string }
  | { type: "keyword.updated"; data: KeywordUpdatedEvent; position: string }
  | { type: "note"; data: InEvent<Message>; position: string }
  | { type: "message_created.event"; data: MessageCreatedEventEvent; position: string };

/** The client of the service. */
export class Service2Pfel {
  /** For requests that have no method here. */
  readonly client: Client;
  readonly everythings: Everythings;
  readonly keywords: Keywords;
  readonly clients: Clients;
  readonly post: Post;
  readonly strings: Strings;
  readonly options: Options;
  readonly values: Values;
  readonly asyncClients: AsyncClientsCollection;
  readonly clientCreates: ClientCreates;
  readonly sheep: SheepCollection;
  readonly messages: Messages;

  constructor(options: ClientOptions) {
    this.client = new Client({ version: "2026-01-01", ...options });
    this.everythings = new Everythings(this.client, "/shop/v2/everythings");
    this.keywords = new Keywords(this.client, "/shop/v2/keywords");
    this.clients = new Clients(this.client, "/shop/v2/clients");
    this.post = new Post(this.client, "/shop/v2/post");
    this.strings = new Strings(this.client, "/shop/v2/strings");
    this.options = new Options(this.client, "/shop/v2/options");
    this.values = new Values(this.client, "/shop/v2/values");
    this.asyncClients = new AsyncClientsCollection(this.client, "/shop/v2/async-clients");
    this.clientCreates = new ClientCreates(this.client, "/shop/v2/client-creates");
    this.sheep = new SheepCollection(this.client, "/shop/v2/sheep");
    this.messages = new Messages(this.client, "/shop/v2/messages");
  }

  /** Every committed change, as it happens. Ignore types that you do not know. */
  follow(options?: FollowOptions): AsyncIterable<Service2PfelMessage> {
    return this.client.follow(options) as AsyncIterable<unknown> as AsyncIterable<Service2PfelMessage>;
  }
}
