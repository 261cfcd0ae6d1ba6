"""The envelope of an event, as webhooks, streams and ``/v1/events`` send it."""

from __future__ import annotations

from typing import Any, TypedDict


class _EventData(TypedDict):
    object: dict[str, Any]


class EventData(_EventData, total=False):
    previous_attributes: dict[str, Any]


class EventRequest(TypedDict):
    id: str | None
    idempotency_key: str | None


class Event(TypedDict):
    id: str
    object: str
    type: str
    api_version: str
    created: int
    livemode: bool
    pending_webhooks: int
    data: EventData
    request: EventRequest | None
