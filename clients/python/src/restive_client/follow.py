"""Followers of the event log: they connect, resume after the last message that they have yielded,
wait between attempts and report gaps."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import httpx

from ._callback import require_plain
from ._core import ENCODINGS, async_text_of, is_decoded, text_of
from ._live import (
    RESET,
    SILENCE_SECONDS,
    End,
    Item,
    Message,
    Options,
    PollReader,
    PositionStore,
    Progress,
    Reset,
    StreamReader,
    poll_error_delay,
    refusal,
    reset_of,
)
from .errors import FollowError, InvalidResponse

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client

__all__ = ["AsyncFollower", "Follower", "Message", "PositionStore", "Reset"]

_SSE = {"Accept": "text/event-stream", "Accept-Encoding": ENCODINGS}
_JSON = {"Accept": "application/json", "Accept-Encoding": ENCODINGS}
#: What may go wrong with a connection, other than a bug: it is reported and tried again.
#: A message of another form than expected raises almost anything, and must not end the user's loop.
_BROKEN = (
    httpx.HTTPError,
    httpx.StreamError,
    InvalidResponse,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class Follower:
    """Iterate over it once. ``close`` ends the loop, from any thread.

    Options:

    - ``channel``: ``"sse"`` (default), or ``"poll"`` for one feed
    - ``types``: event types, patterns such as ``order.*``, live names of feeds
    - ``resource``, ``parent``: only events of this record, or of the children of this one
    - ``feed``: name of the feed, for ``"poll"``
    - ``since``: start after this position; default: what ``positions`` loads, otherwise now
    - ``positions``: a ``PositionStore``; a position is saved after its message was processed
    - ``token``: a function that returns a channel token, called again when it has expired
    - ``on_reset``: called with a ``Reset`` instead of yielding ``stream.reset``
    - ``on_state``: called with ``"connecting"``, ``"open"`` or ``"waiting"``, the delay in
      seconds, and the error that ended the connection
    - ``user``: the user who is online while the follower is connected with an API key
    """

    def __init__(self, client: Client, **options: Any) -> None:
        self._client = client
        self._options = Options(**options)
        require_plain(on_state=self._options.on_state, on_reset=self._options.on_reset)
        self._progress = Progress(self._options)
        self._stop = threading.Event()
        self._response: httpx.Response | None = None
        self._token: str | None = None

    @property
    def position(self) -> str | None:
        """Position of the last message that was yielded."""
        return self._progress.position

    def close(self) -> None:
        self._stop.set()
        response = self._response
        stream = response.extensions.get("network_stream") if response is not None else None
        connection = stream.get_extra_info("socket") if stream else None
        if isinstance(connection, socket.socket):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The connection has ended already.

    def __iter__(self) -> Iterator[Message]:
        progress, options = self._progress, self._options
        if progress.position is None and options.positions:
            progress.position = options.positions.load()
        while not self._stop.is_set():
            self._report("connecting")
            began = time.monotonic()
            progress.opened = False
            end = yield from self._connect()
            if self._stop.is_set():
                return
            if end.fatal:
                raise end.fatal
            if end.refresh:
                self._renew()
            delay = progress.delay(end, time.monotonic() - began)
            self._report("waiting", delay, end.error)
            self._stop.wait(delay)

    def _connect(self) -> Generator[Message, None, End]:
        """One connection, from its begin to its end; yields messages, returns an ``End``."""
        try:
            if self._token is None and self._options.token:
                self._token = self._options.token()
        except Exception as error:
            return End(error=error)
        items = self._poll() if self._options.channel == "poll" else self._stream()
        while True:
            try:
                item = next(items)
                message, position = self._progress.take(item)
            except StopIteration as stop:
                end: End = stop.value
                return end
            except _BROKEN as error:
                items.close()
                polls = self._options.channel == "poll"
                return End(error=error, delay=poll_error_delay() if polls else None)
            if self._stop.is_set():
                return End()
            if item.opened:
                self._report("open")
            if message and message.type == RESET:
                self._reset(message)
            if message and not (message.type == RESET and self._options.on_reset):
                yield message
            if position is not None and self._options.positions:
                self._save(position)

    def _stream(self) -> Generator[Item, None, End]:
        url = self._progress.url(self._client.url, self._client.version, self._token)
        reader = StreamReader()
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self._client.stream(url, _SSE, self._token, SILENCE_SECONDS) as response:
            self._response = response
            body = None if response.is_success else text_of(response)
            end = _check(response, body, self._can_renew())
            if end:
                return end
            for chunk in response.iter_raw() if _is_plain(response) else response.iter_bytes():
                items, closing = reader.push(decoder.decode(chunk))
                yield from items
                if closing:
                    return closing
        return End(delay=reader.retry)

    def _poll(self) -> Generator[Item, None, End]:
        reader = PollReader(self._options, self._progress.position)
        base, version, token = self._client.url, self._client.version, self._token
        while True:
            since, began = reader.position, time.monotonic()
            url = self._progress.poll_url(base, version, token, since)
            with self._client.stream(url, _JSON, token, SILENCE_SECONDS) as response:
                self._response = response
                text = text_of(response)
            if not response.is_success:
                return refusal(response.status_code, response.headers, text, self._can_renew())
            lasted = time.monotonic() - began
            yield from reader.push(response.headers, text)
            if self._stop.wait(reader.pause(since, lasted)):
                return End()

    def _reset(self, message: Message) -> None:
        try:
            if self._options.on_reset:
                self._options.on_reset(reset_of(message))
        except Exception as error:
            raise FollowError("on_reset failed; the position stays before the gap") from error
        # Not before the callback: if it fails, the gap is reported again after a restart.
        self._progress.position = message.position or self._progress.position

    def _save(self, position: str) -> None:
        try:
            if self._options.positions:
                self._options.positions.save(position)
        except Exception as error:
            raise FollowError("the position was not saved") from error

    def _can_renew(self) -> bool:
        return self._options.token is not None or self._client.can_renew

    def _renew(self) -> None:
        """A function for tokens is asked by the next connection, one for keys now."""
        self._token = None
        if not self._options.token:
            try:
                self._client.credential(refused=True)
            except Exception:
                pass  # It may fail for a moment: the next attempt asks again.

    def _report(self, state: str, delay: float = 0.0, error: Exception | None = None) -> None:
        if self._options.on_state:
            self._options.on_state(state, delay, error)


class AsyncFollower:
    """``Follower`` for asyncio: ``async for``; its callbacks may be coroutines.

    A loop that is left with ``break`` keeps its connection until the follower is closed: use
    ``async with``, or ``await follower.aclose()``.
    """

    def __init__(self, client: AsyncClient, **options: Any) -> None:
        self._client = client
        self._options = Options(**options)
        self._progress = Progress(self._options)
        self._stopped = False
        self._task: asyncio.Future[Any] | None = None
        self._token: str | None = None
        self._loop: AsyncGenerator[Message, None] | None = None

    @property
    def position(self) -> str | None:
        """Position of the last message that was yielded."""
        return self._progress.position

    def close(self) -> None:
        """Ends the loop."""
        self._stopped = True
        if self._task:
            self._task.cancel()

    async def aclose(self) -> None:
        """Ends the loop and its connection. Not from within the loop."""
        self.close()
        if self._loop:
            await self._loop.aclose()

    async def __aenter__(self) -> AsyncFollower:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Message]:
        self._loop = self._run()
        return self._loop

    async def _run(self) -> AsyncGenerator[Message, None]:
        progress, options = self._progress, self._options
        if progress.position is None and options.positions:
            progress.position = await _result(options.positions.load())
        while not self._stopped:
            await self._report("connecting")
            began = time.monotonic()
            progress.opened = False
            end = End()
            connection = self._connect()
            try:
                async for found in connection:
                    if isinstance(found, End):
                        end = found
                    else:
                        yield found
            finally:
                await connection.aclose()
            if self._stopped:
                return
            if end.fatal:
                raise end.fatal
            if end.refresh:
                await self._renew()
            delay = progress.delay(end, time.monotonic() - began)
            await self._report("waiting", delay, end.error)
            await self._step(asyncio.sleep(delay))

    async def _connect(self) -> AsyncGenerator[Message | End, None]:
        try:
            if self._token is None and self._options.token:
                self._token = await _result(self._options.token())
        except Exception as error:
            yield End(error=error)
            return
        polls = self._options.channel == "poll"
        items = self._poll() if polls else self._stream()
        try:
            while True:
                try:
                    item = await self._step(items.__anext__())
                    if item is None or isinstance(item, End):
                        yield item or End()
                        return
                    message, position = self._progress.take(item)
                except _BROKEN as error:
                    yield End(error=error, delay=poll_error_delay() if polls else None)
                    return
                if item.opened:
                    await self._report("open")
                if message and message.type == RESET:
                    await self._reset(message)
                if message and not (message.type == RESET and self._options.on_reset):
                    yield message
                if position is not None and self._options.positions:
                    await self._save(position)
        finally:
            await items.aclose()

    async def _step(self, awaitable: Any) -> Any:
        """Waits for one step; None if ``close`` was called in the meantime."""
        self._task = asyncio.ensure_future(awaitable)
        try:
            return await self._task
        except asyncio.CancelledError:
            if not self._stopped:
                self._task.cancel()
                raise
            return None
        finally:
            self._task = None

    async def _stream(self) -> AsyncGenerator[Item | End, None]:
        url = self._progress.url(self._client.url, self._client.version, self._token)
        reader = StreamReader()
        decoder = codecs.getincrementaldecoder("utf-8")()
        opening = await self._client.stream(url, _SSE, self._token, SILENCE_SECONDS)
        async with opening as response:
            body = None if response.is_success else await async_text_of(response)
            end = _check(response, body, self._can_renew())
            if end:
                yield end
                return
            chunks = response.aiter_raw() if _is_plain(response) else response.aiter_bytes()
            async for chunk in chunks:
                items, closing = reader.push(decoder.decode(chunk))
                for item in items:
                    yield item
                if closing:
                    yield closing
                    return
        yield End(delay=reader.retry)

    async def _poll(self) -> AsyncGenerator[Item | End, None]:
        reader = PollReader(self._options, self._progress.position)
        base, version, token = self._client.url, self._client.version, self._token
        while True:
            since, began = reader.position, time.monotonic()
            url = self._progress.poll_url(base, version, token, since)
            async with await self._client.stream(url, _JSON, token, SILENCE_SECONDS) as response:
                text = await async_text_of(response)
            if not response.is_success:
                yield refusal(response.status_code, response.headers, text, self._can_renew())
                return
            lasted = time.monotonic() - began
            for item in reader.push(response.headers, text):
                yield item
            await asyncio.sleep(reader.pause(since, lasted))

    async def _reset(self, message: Message) -> None:
        try:
            if self._options.on_reset:
                await _result(self._options.on_reset(reset_of(message)))
        except Exception as error:
            raise FollowError("on_reset failed; the position stays before the gap") from error
        self._progress.position = message.position or self._progress.position

    async def _save(self, position: str) -> None:
        try:
            if self._options.positions:
                # The interface returns nothing, but an implementation may be a coroutine.
                save: Callable[[str], Any] = self._options.positions.save
                await _result(save(position))
        except Exception as error:
            raise FollowError("the position was not saved") from error

    def _can_renew(self) -> bool:
        return self._options.token is not None or self._client.can_renew

    async def _renew(self) -> None:
        """A function for tokens is asked by the next connection, one for keys now."""
        self._token = None
        if not self._options.token:
            try:
                await self._client.credential(refused=True)
            except Exception:
                pass  # It may fail for a moment: the next attempt asks again.

    async def _report(
        self, state: str, delay: float = 0.0, error: Exception | None = None
    ) -> None:
        if self._options.on_state:
            await _result(self._options.on_state(state, delay, error))


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _check(response: httpx.Response, body: str | None, can_renew: bool) -> End | None:
    if body is not None:
        return refusal(response.status_code, response.headers, body, can_renew)
    kind = response.headers.get("content-type", "")
    if not kind.startswith("text/event-stream") or not is_decoded(response):
        return End(error=InvalidResponse("the response is not an event stream"))
    return None


def _is_plain(response: httpx.Response) -> bool:
    """Decoders wait for more bytes, so an uncompressed stream is read without one."""
    return bool(response.headers.get("content-encoding", "identity") == "identity")
