"""Compares the inbox with the provider's list of events, and queues what is missing: deliveries
that were lost, or sent while the endpoint was disabled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._callback import require_plain
from ._chronology import Chronology, Listed
from .inbox import InboxStore, is_usable_id, text_of

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client

_SETTING = "reconciled_until"
#: Objects of the service itself. Their events are delivered only to endpoints that name them, and a
#: ping only to the endpoint that it tests.
_OWN = ("webhook_endpoint", "replay", "erasure", "ping")

FIRST_SECONDS = 3 * 86_400
OVERLAP_SECONDS = 300


#: Called for each entry of the list that is no event with a usable id. It is left out. What the
#: call raises is ignored.
OnSkipped = Callable[[Any], object]


class _Run:
    def __init__(
        self,
        store: InboxStore,
        types: Sequence[str] | None,
        first_seconds: float,
        overlap_seconds: float,
        on_skipped: OnSkipped | None,
    ) -> None:
        require_plain(on_skipped=on_skipped)
        self._store = store
        self._on_skipped = on_skipped
        # Without types, or with `*`, the whole list is read, and `_is_sent` chooses.
        reads_all = not types or "*" in types
        self._named = [one for one in types or () if one != "*"] if reads_all else None
        self._now = int(time.time())
        stored = int(store.setting(_SETTING) or 0)
        # A position from the future says nothing about what was read: the run begins as the first.
        is_known = stored <= self._now + overlap_seconds
        self._newest = min(stored, self._now) if is_known else 0
        since = self._newest - overlap_seconds if self._newest else self._now - first_seconds
        self.query: dict[str, Any] = {
            "min_created": int(since),
            "sort": "created",
            "limit": 100,
        }
        if self._named is None:
            self.query["type"] = list(types or ())
        self._chronology = Chronology()
        self._missing = 0

    def take(self, event: Any) -> None:
        # One that cannot be stored must not stop the others.
        if not isinstance(event, dict) or not is_usable_id(event.get("id")):
            if self._on_skipped:
                with contextlib.suppress(Exception):
                    self._on_skipped(event)
            return
        kind, created = text_of(event.get("type")), event.get("created")
        if not _is_sent(kind, self._named):
            return
        # Escaped: half of a surrogate pair cannot be stored.
        body = json.dumps(event, separators=(",", ":"))
        at = created if isinstance(created, int) else None
        self._put(self._chronology.push(Listed(event["id"], kind, body, at)))

    def _put(self, events: Sequence[Listed]) -> None:
        for event in events:
            # The clock of the provider, which may differ from the one here. An event from the
            # future is queued, but is no position.
            if event.created is not None and event.created <= self._now:
                self._newest = max(self._newest, event.created)
            if self._store.put(event.id, event.type, event.body, "") == "stored":
                self._missing += 1

    def finish(self) -> int:
        self._put(self._chronology.rest())
        # Only after the last page: a run that fails is repeated as a whole.
        self._store.set_setting(_SETTING, str(self._newest))
        return self._missing


def _is_sent(kind: str, named: Sequence[str] | None) -> bool:
    """Whether a webhook would have brought this type. ``named``: the types beside ``*``; None if
    the provider has chosen already."""
    if named is None or kind.split(".")[0] not in _OWN:
        return True
    return any(kind == one or (one.endswith("*") and kind.startswith(one[:-1])) for one in named)


def reconcile(
    client: Client,
    store: InboxStore,
    *,
    types: Sequence[str] | None = None,
    first_seconds: float = FIRST_SECONDS,
    overlap_seconds: float = OVERLAP_SECONDS,
    path: str = "/v1/events",
    on_skipped: OnSkipped | None = None,
) -> int:
    """One comparison. Returns how many events were missing and are queued now.

    ``types``: as ``enabled_events`` of the endpoint has them. ``first_seconds``: how far back the
    first run looks; later runs begin where the last one ended, ``overlap_seconds`` earlier.
    ``on_skipped``: called for each entry of the list that is no event with a usable id.
    """
    run = _Run(store, types, first_seconds, overlap_seconds, on_skipped)
    for event in client.list(path, run.query):
        run.take(event)
    return run.finish()


async def async_reconcile(
    client: AsyncClient,
    store: InboxStore,
    *,
    types: Sequence[str] | None = None,
    first_seconds: float = FIRST_SECONDS,
    overlap_seconds: float = OVERLAP_SECONDS,
    path: str = "/v1/events",
    on_skipped: OnSkipped | None = None,
) -> int:
    """``reconcile`` for asyncio."""
    options = (types, first_seconds, overlap_seconds, on_skipped)
    run = await asyncio.to_thread(_Run, store, *options)
    async for event in client.list(path, run.query):
        await asyncio.to_thread(run.take, event)
    return await asyncio.to_thread(run.finish)
