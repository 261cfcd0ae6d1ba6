// The main entry: the API client and the follower of live events. Runs in browsers and in Node.
// Webhooks are in `restive-client/webhook`, `restive-client/receiver` and `restive-client/node`.

export { Client } from "./client.js";
export type { ClientOptions, Meta, Query, RequestOptions, WriteOptions } from "./client.js";
export { Collection } from "./collection.js";
export type { ListQuery, ReadQuery } from "./collection.js";
export * from "./errors.js";
export type { Event } from "./event.js";
export { Follower } from "./follow/follower.js";
export type {
  FollowOptions,
  FollowState,
  Message,
  PositionStore,
  Reset,
} from "./follow/message.js";
export { Page } from "./list.js";
export type { List } from "./list.js";
export { path } from "./path.js";
export { meta } from "./meta.js";
