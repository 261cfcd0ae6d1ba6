// Errors of the client and the follower. All of them extend `RestiveError`.

export class RestiveError extends Error {
  override name = "RestiveError";
}

/** The request did not reach the server, or its response was lost. */
export class ConnectionError extends RestiveError {
  override name = "ConnectionError";
}

/** The server did not respond within `timeout`. */
export class TimeoutError extends ConnectionError {
  override name = "TimeoutError";
}

/** The response is not what a restive server sends, for example the HTML page of a proxy. */
export class InvalidResponseError extends RestiveError {
  override name = "InvalidResponseError";
}

/** The follower ended and must not reconnect: the message says why. */
export class FollowError extends RestiveError {
  override name = "FollowError";
}

/** One field of a request that the server refused. */
export interface FieldError {
  code: string;
  field?: string;
  pointer?: string;
  message?: string;
  value?: unknown;
}

/** The server responded with an error status. */
export class ApiError extends RestiveError {
  override name = "ApiError";
  readonly status: number;
  /** Stable code, see docs/errors.md; empty if the response came from something else. */
  readonly code: string;
  readonly type: string;
  readonly param: string | undefined;
  readonly errors: FieldError[];
  readonly requestId: string | undefined;
  readonly docUrl: string | undefined;
  /** Milliseconds that the server asks to wait. */
  readonly retryAfter: number | undefined;
  /** The whole error object, with the members that a schema adds. */
  readonly body: Record<string, unknown>;

  constructor(status: number, headers: Headers, body: Record<string, unknown>) {
    const text = (name: string) => (typeof body[name] === "string" ? body[name] : undefined);
    super(text("message") ?? `the server responded with status ${status}`);
    this.status = status;
    this.code = text("code") ?? "";
    this.type = text("type") ?? "";
    this.param = text("param") ?? text("field");
    this.errors = Array.isArray(body["errors"]) ? body["errors"] : [];
    this.requestId = text("request_id") ?? headers.get("request-id") ?? undefined;
    this.docUrl = text("doc_url") ?? text("documentation_url");
    this.retryAfter = retryAfter(headers.get("retry-after"), Date.now());
    this.body = body;
  }
}

export class BadRequestError extends ApiError {
  override name = "BadRequestError";
}
export class AuthenticationError extends ApiError {
  override name = "AuthenticationError";
}
export class PaymentError extends ApiError {
  override name = "PaymentError";
}
export class PermissionError extends ApiError {
  override name = "PermissionError";
}
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}
export class ConflictError extends ApiError {
  override name = "ConflictError";
}
/** The record is not the one that `ifMatch` names (412), or `ifMatch` is required (428). */
export class PreconditionError extends ApiError {
  override name = "PreconditionError";
}
/** `errors` lists all fields that the server refused. */
export class ValidationError extends ApiError {
  override name = "ValidationError";
}
export class IdempotencyError extends ApiError {
  override name = "IdempotencyError";
}
export class RateLimitError extends ApiError {
  override name = "RateLimitError";
}
export class ServerError extends ApiError {
  override name = "ServerError";
}

const CLASSES: Record<number, typeof ApiError> = {
  400: BadRequestError,
  401: AuthenticationError,
  402: PaymentError,
  403: PermissionError,
  404: NotFoundError,
  409: ConflictError,
  412: PreconditionError,
  422: ValidationError,
  428: PreconditionError,
  429: RateLimitError,
};

/** The error of a response, from its status and its body, whatever the body is. */
export function apiError(status: number, headers: Headers, text: string): ApiError {
  let body: Record<string, unknown> = {};
  try {
    const parsed = JSON.parse(text);
    // Structured bodies have an `error` object, flat ones are that object.
    const found = parsed?.error ?? parsed;
    if (typeof found === "object" && found !== null) body = found;
  } catch {
    // Not JSON: the status is all that is known.
  }
  if (body["type"] === "idempotency_error") return new IdempotencyError(status, headers, body);
  const Class = CLASSES[status] ?? (status >= 500 ? ServerError : ApiError);
  return new Class(status, headers, body);
}

/** Seconds or an HTTP date, as milliseconds from `now`; undefined if it is neither. */
export function retryAfter(value: string | null, now: number): number | undefined {
  if (!value) return undefined;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
