// All operations of one collection, for code without generated classes.

import type { Client, RequestOptions, WriteOptions } from "./client.js";
import type { List } from "./list.js";
import { path } from "./path.js";

export interface ReadQuery {
  /** Related records to embed. */
  expand?: string | readonly string[];
  /** Fields to return. */
  fields?: string | readonly string[];
}

export interface ListQuery extends ReadQuery {
  limit?: number;
  page?: number;
  after?: string;
  /** Field names; a leading `-` sorts in descending order. */
  sort?: string | readonly string[];
  /** Full-text search. */
  q?: string;
}

type Id = string | number;

export class Collection<
  T = Record<string, unknown>,
  Create = Partial<T>,
  Update = Partial<T>,
  Q extends object = ListQuery & Record<string, unknown>,
> {
  constructor(
    readonly client: Client,
    readonly path: string,
  ) {}

  list(query?: Q, options?: RequestOptions): List<T> {
    return this.client.list<T>(this.path, query, options);
  }

  get(id: Id, query?: ReadQuery, options?: RequestOptions): Promise<T> {
    return this.client.get<T>(this.#at(id), query, options);
  }

  create(body: Create, options?: WriteOptions): Promise<T> {
    return this.client.post<T>(this.path, body, options);
  }

  /** Fields that the body omits become null or their default. */
  replace(id: Id, body: Create, options?: WriteOptions): Promise<T> {
    return this.client.put<T>(this.#at(id), body, options);
  }

  update(id: Id, patch: Update, options?: WriteOptions): Promise<T> {
    return this.client.patch<T>(this.#at(id), patch, options);
  }

  delete(id: Id, options?: WriteOptions): Promise<void> {
    return this.client.delete(this.#at(id), options);
  }

  action<R = T>(id: Id, name: string, params?: unknown, options?: WriteOptions): Promise<R> {
    return this.client.post<R>(this.#at(id) + path`/${name}`, params, options);
  }

  #at(id: Id): string {
    return this.path + path`/${id}`;
  }
}
