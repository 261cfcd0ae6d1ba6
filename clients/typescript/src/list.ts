// Lists: pages, and all records across pages.

import type { Client, Query, RequestOptions } from "./client.js";
import { InvalidResponseError } from "./errors.js";
import { meta, remember } from "./meta.js";

/** `await` gives the first page; `for await` gives every record of all pages. */
export interface List<T> extends PromiseLike<Page<T>>, AsyncIterable<T> {
  pages(): AsyncGenerator<Page<T>>;
  /** All records, at most `max` of them. */
  toArray(max?: number): Promise<T[]>;
}

interface ListBody<T> {
  data: T[];
  pagination?: {
    next_cursor?: string | null;
    has_more?: boolean;
    page?: number;
    total?: number;
    total_pages?: number;
  };
}

/** One page of a list. */
export class Page<T> {
  readonly data: T[];
  readonly hasMore: boolean;
  readonly nextCursor: string | null;
  /** Number of records of all pages; only if the list was asked for with `page`. */
  readonly total: number | undefined;
  /** Position of the log at which the page was read. */
  readonly position: string | undefined;
  readonly #next: Query | undefined;
  readonly #fetch: (query: Query) => Promise<Page<T>>;

  constructor(body: ListBody<T>, query: Query, fetch: (query: Query) => Promise<Page<T>>) {
    const { next_cursor, has_more, page, total, total_pages } = body.pagination ?? {};
    this.data = body.data;
    this.nextCursor = next_cursor ?? null;
    this.total = total;
    this.#fetch = fetch;
    if (next_cursor && has_more !== false) {
      if (next_cursor === query["after"]) {
        throw new InvalidResponseError("the server returned the same cursor again");
      }
      this.#next = { ...query, after: next_cursor };
    } else if (page && total_pages && page < total_pages) {
      this.#next = { ...query, page: page + 1 };
    }
    this.hasMore = this.#next !== undefined;
    this.position = meta(body)?.position;
  }

  /** The page after this one, or null after the last one. */
  async next(): Promise<Page<T> | null> {
    return this.#next ? this.#fetch(this.#next) : null;
  }
}

export class ListRequest<T> implements List<T> {
  constructor(
    private readonly client: Client,
    private readonly path: string,
    private readonly query: Query,
    private readonly options: RequestOptions,
  ) {}

  async #page(query: Query): Promise<Page<T>> {
    const { value, response } = await this.client.send("GET", this.path, {
      ...this.options,
      query,
    });
    const body = value as ListBody<T>;
    if (!Array.isArray(body?.data)) {
      throw new InvalidResponseError(`${this.path} is not a list: the response has no "data"`);
    }
    const page = new Page<T>(body, query, (next) => this.#page(next));
    remember(page, response);
    return page;
  }

  then<A = Page<T>, B = never>(
    done?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    failed?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#page(this.query).then(done, failed);
  }

  async *pages(): AsyncGenerator<Page<T>> {
    let page: Page<T> | null = await this.#page(this.query);
    while (page) {
      yield page;
      page = await page.next();
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for await (const page of this.pages()) yield* page.data;
  }

  async toArray(max = Infinity): Promise<T[]> {
    const all: T[] = [];
    if (max <= 0) return all;
    for await (const record of this) {
      if (all.push(record) >= max) break;
    }
    return all;
  }
}
