"""What the sync and the async follower share: the formats, positions and delays. Does no I/O."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ._core import path, query_string
from ._json import loads
from .errors import ApiError, FollowError, InvalidResponse, api_error

#: The server sends at least a comment every 25 s; without one the connection is dead.
SILENCE_SECONDS = 60.0
#: No event of a restive service is longer, so a longer block comes from something else.
MAX_BLOCK_CHARS = 16 * 1024 * 1024
MAX_RETRY_DIGITS = 15
#: Delay after a failed poll: a poll is cheap, but not at full speed against a dead server.
POLL_ERROR_SECONDS = 3.0
#: A position that no log reaches: the answer is the current one.
BEYOND = 2**53 - 1
#: A connection that ends sooner may be refused for a reason that reconnecting does not change.
SHORT_SECONDS = 1.0
#: After a connection that lasted longer, or had a message, delays begin again at the shortest.
STEADY_SECONDS = 5.0

#: A server that asks for less gets that: it may be wrong, or there may be many followers.
MIN_ASKED_SECONDS = 1.0
#: The longest delay that a server may ask for. No live service needs longer, and a follower that a
#: wrong header stops for a day looks like one that works.
MAX_ASKED_SECONDS = 300.0
BASE_SECONDS = 1.0
MAX_SECONDS = 30.0

RESET = "stream.reset"


@dataclass(frozen=True)
class Message:
    """One message of a live channel."""

    #: Type of the event, live name of the feed, ``typing``, ``online``, or ``stream.reset`` and
    #: ``presence.reset``.
    type: str
    #: The event with its envelope; for a feed, the new record.
    data: Any
    #: Only for events and records: ``typing`` and ``online`` are not in the log.
    position: str | None = None
    user: str | None = None
    resource: str | None = None
    online: bool | None = None


@dataclass(frozen=True)
class Reset:
    """The log cannot be resumed from ``requested``: read the lists in ``refetch`` again."""

    reason: str
    requested: str | None = None
    resumed_at: str | None = None
    refetch: tuple[str, ...] = ()


class PositionStore(Protocol):
    """Keeps the position across restarts of the process. Async followers accept it too."""

    def load(self) -> str | None: ...

    def save(self, position: str) -> None:
        """Called after a message was processed, which is when the loop asks for the next one."""


@dataclass
class Options:
    channel: str = "sse"
    types: Sequence[str] | None = None
    resource: str | None = None
    parent: str | None = None
    user: str | None = None
    feed: str | None = None
    since: str | int | None = None
    positions: PositionStore | None = None
    token: Callable[[], Any] | None = None
    on_reset: Callable[[Reset], Any] | None = None
    on_state: Callable[[str, float, Exception | None], Any] | None = None
    mount: str = "/api"

    def __post_init__(self) -> None:
        if self.channel not in ("sse", "poll"):
            raise ValueError('channel must be "sse" or "poll"')
        if self.channel == "poll" and not self.feed:
            raise ValueError('channel "poll" needs the name of a feed')


@dataclass
class Item:
    """What a channel reports while it is connected."""

    opened: bool = False
    position: str | None = None
    message: Message | None = None


@dataclass
class End:
    """Why a connection ended, and what to do next."""

    fatal: Exception | None = None
    #: Reconnect without a delay.
    now: bool = False
    #: Seconds that the server asks to wait.
    delay: float | None = None
    #: The token is no longer valid.
    refresh: bool = False
    error: Exception | None = None


@dataclass
class Block:
    event: str | None = None
    id: str | None = None
    data: str | None = None
    retry: int | None = None

    def is_empty(self) -> bool:
        return self == Block()


class SseParser:
    """Parses server-sent events. Only complete blocks count: what is left when a connection breaks
    was not received."""

    def __init__(self) -> None:
        #: The incomplete last line, in the parts that came.
        self._rest: list[str] = []
        self._block = Block()
        #: The lines of its data. They are joined once, at its end.
        self._data: list[str] = []
        self._size = 0

    def push(self, text: str) -> list[Block]:
        """The blocks that the text completes."""
        blocks: list[Block] = []
        self._rest.append(text)
        self._size += len(text)
        if self._size > MAX_BLOCK_CHARS:
            raise InvalidResponse("an event is too long")
        # A long line comes in many parts, which are not searched again.
        held = len(self._rest) > 1 and self._rest[-2].endswith("\r")
        if not held and "\n" not in text and "\r" not in text:
            return blocks
        # A carriage return at the end may be half of a line end.
        lines = re.split(r"\r\n|\n|\r(?!\Z)", "".join(self._rest))
        self._rest = [lines.pop()]
        for line in lines:
            if line:
                self._field(line)
                continue
            if self._data:
                self._block.data = "\n".join(self._data)
            if not self._block.is_empty():
                blocks.append(self._block)
            self._block, self._data = Block(), []
            self._size = len(self._rest[0])
        return blocks

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        block = self._block
        # A line that begins with a colon is a comment: it has no name.
        if name == "data":
            self._data.append(value)
        elif name == "event":
            block.event = value
        elif name == "id" and "\0" not in value:
            block.id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            # Longer ones are not obeyed, and need not be converted.
            block.retry = int(value) if len(value) <= MAX_RETRY_DIGITS else 10**MAX_RETRY_DIGITS


class StreamReader:
    """Turns the text of a stream into items."""

    def __init__(self) -> None:
        self._parser = SseParser()
        self._greeted = False
        self.retry: float | None = None

    def push(self, text: str) -> tuple[list[Item], End | None]:
        items: list[Item] = []
        for block in self._parser.push(text):
            if block.retry is not None:
                self.retry = block.retry / 1000
            if block.event == "stream.closing":
                return items, _closing(block)
            item = self._item(block)
            if item:
                items.append(item)
        return items, None

    def _item(self, block: Block) -> Item | None:
        # The first block with an id is the greeting.
        first = not self._greeted and block.id is not None
        self._greeted = self._greeted or block.id is not None
        if block.data is None:
            return None if block.id is None else Item(opened=first, position=block.id)
        data = loads(block.data)
        kind = block.event or "message"
        if kind in ("typing", "online"):
            resource, online = data.get("resource"), data.get("online")
            found = Message(kind, data.get("data"), None, data.get("user"), resource, online)
            return Item(message=found)
        return Item(position=block.id, message=Message(kind, data, block.id))


def _closing(block: Block) -> End:
    reason = loads(block.data or "{}").get("reason")
    if reason == "key_revoked":
        return End(fatal=FollowError("the key was revoked"))
    return End(now=True, refresh=True) if reason == "token_expired" else End()


class PollReader:
    """Turns the responses of long polls into items."""

    def __init__(self, options: Options, position: str | None) -> None:
        self._feed = options.feed or ""
        self.position = position
        self._opened = False

    def push(self, headers: Mapping[str, str], text: str) -> list[Item]:
        records = loads(text)
        here = headers.get("x-stream-position")
        if not isinstance(records, list) or here is None:
            raise InvalidResponse("not the response to a poll")
        fresh = self.position is None
        gap = headers.get("x-stream-gap") == "true" and not fresh
        items = []
        if not self._opened:
            items.append(Item(opened=True, position=here if fresh else None))
            self._opened = True
        if gap:
            data = {
                "reason": "position_unknown",
                "requested": self.position,
                "resumed_at": here,
                "refetch": [path("/v1/{}", self._feed)],
            }
            items.append(Item(position=here, message=Message(RESET, data, here)))
        if gap or fresh:
            self.position = here
        epoch = here[: here.rfind(".") + 1]
        for record in records:
            self.position = f"{epoch}{record['id']}"
            found = Message(record["object"], record, self.position)
            items.append(Item(position=self.position, message=found))
        return items

    def pause(self, since: str | None, seconds: float) -> float:
        """Seconds to wait after a poll from this position that took so long: an empty response
        comes after 25 s. The first request asks for the position, and is answered at once."""
        is_empty = since is not None and self.position == since
        return MIN_ASKED_SECONDS if is_empty and seconds < MIN_ASKED_SECONDS else 0.0


class Progress:
    """Where a follower is, and how long it waits."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.position = None if options.since is None else str(options.since)
        self.failures = 0
        self.short = 0
        self.opened = False

    def take(self, item: Item) -> tuple[Message | None, str | None]:
        """The message to yield, and the position to save after it."""
        if item.opened:
            self.opened = True
            # The first position of a resumed connection may be after a gap that the next message
            # reports, so only that message may move the position there.
            if self.position is not None:
                return None, None
        message, position = item.message, item.position
        past = position is not None and is_past(position, self.position)
        if past and not (message and message.type == RESET):
            return None, None
        if not (message and message.type == RESET):
            if position is not None:
                self.position = position
            if message:
                self.failures = 0
        return message, position

    def delay(self, end: End, lived: float) -> float:
        """Seconds to wait after a connection."""
        if self.opened and lived >= STEADY_SECONDS:
            self.failures = 0
        self.short = self.short + 1 if lived < SHORT_SECONDS else 0
        if end.now and (self.opened or end.refresh) and self.short < 2:
            return 0.0
        delay = reconnect_delay(self.failures)
        if end.delay is not None:
            asked = min(max(end.delay, MIN_ASKED_SECONDS), MAX_ASKED_SECONDS)
            delay = asked if self.opened else max(delay, asked)
        self.failures += 1
        return delay

    def url(self, base: str, version: str | None, token: str | None) -> str:
        options = self.options
        query = {
            "types": options.types,
            "resource": options.resource,
            "parent": options.parent,
            "since": self.position,
            "version": version,
            # The token names its user.
            "user": None if token else options.user,
        }
        asked = {name: value for name, value in query.items() if value is not None}
        return f"{base}{options.mount}/events{query_string(asked)}"

    def poll_url(self, base: str, version: str | None, token: str | None, since: str | None) -> str:
        query: dict[str, Any] = {"since": BEYOND if since is None else since, "wait": True}
        if version:
            query["version"] = version
        if self.options.user and not token:
            query["user"] = self.options.user
        feed = path("/{}", self.options.feed or "")
        return f"{base}{self.options.mount}{feed}{query_string(query)}"


def reset_of(message: Message) -> Reset:
    data = message.data if isinstance(message.data, dict) else {}
    refetch = tuple(data.get("refetch") or ())
    return Reset(str(data.get("reason")), data.get("requested"), data.get("resumed_at"), refetch)


def refusal(status: int, headers: Mapping[str, str], text: str, can_renew: bool) -> End:
    """What to do after an error status."""
    error = api_error(status, headers, text)
    if status == 401 and can_renew:
        return End(refresh=True, now=True, error=error)
    if _is_final(error):
        fatal = FollowError(f"refused: {error}")
        fatal.__cause__ = error
        return End(fatal=fatal)
    return End(error=error, delay=error.retry_after)


def _is_final(error: ApiError) -> bool:
    """A proxy in between may fail with any status, but only the service sends codes."""
    return error.status < 500 and error.status not in (408, 429) and error.code != ""


def reconnect_delay(failures: int, chance: float | None = None) -> float:
    """Doubles from 1 s, with jitter, at most 30 s."""
    base = min(BASE_SECONDS * 2.0 ** min(failures, 10), MAX_SECONDS / 2)
    return base + (random.random() if chance is None else chance) * base


def poll_error_delay() -> float:
    return POLL_ERROR_SECONDS * (1 + random.random() / 3)


def is_past(position: str, last: str | None) -> bool:
    """Whether the position is not after ``last`` in the same log."""
    if last is None:
        return False
    epoch, _, number = position.rpartition(".")
    known, _, reached = last.rpartition(".")
    same = epoch == known or not epoch or not known
    return same and int(number) <= int(reached)
