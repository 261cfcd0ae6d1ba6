"""Client, follower and webhook receiver for restive services."""

from ._collection import AsyncCollection, Collection
from ._core import Key, AsyncKey, Meta, Record, meta, path
from ._lists import AsyncList, List, Page
from ._event import Event, EventData, EventRequest
from .aio import AsyncClient
from .client import Client
from .errors import (
    ApiError,
    AuthenticationFailed,
    BadRequest,
    Conflict,
    ConnectionFailed,
    FollowError,
    IdempotencyConflict,
    InvalidResponse,
    NotFound,
    PaymentFailed,
    PermissionDenied,
    PreconditionFailed,
    RateLimited,
    RequestTimeout,
    RestiveError,
    ServerError,
    ValidationFailed,
)
from .follow import AsyncFollower, Follower, Message, PositionStore, Reset

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncCollection",
    "AsyncFollower",
    "AsyncKey",
    "AsyncList",
    "AuthenticationFailed",
    "BadRequest",
    "Client",
    "Collection",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "EventData",
    "EventRequest",
    "FollowError",
    "Follower",
    "IdempotencyConflict",
    "InvalidResponse",
    "Key",
    "List",
    "Message",
    "Meta",
    "NotFound",
    "Page",
    "PaymentFailed",
    "PermissionDenied",
    "PositionStore",
    "PreconditionFailed",
    "RateLimited",
    "Record",
    "RequestTimeout",
    "Reset",
    "RestiveError",
    "ServerError",
    "ValidationFailed",
    "meta",
    "path",
]
