// The envelope of an event, as webhooks, streams and `/v1/events` send it.

export interface Event<T = Record<string, unknown>, Type extends string = string> {
  id: string;
  object: "event";
  type: Type;
  api_version: string;
  /** Unix seconds. */
  created: number;
  livemode: boolean;
  pending_webhooks: number;
  data: { object: T; previous_attributes?: Partial<T> };
  request: { id: string | null; idempotency_key: string | null } | null;
}
