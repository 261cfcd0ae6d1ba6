"""Takes events from the inbox and gives them to the handler, with retries."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from ._callback import is_coroutine_function, require_plain
from ._json import loads
from .inbox import InboxStore, QueuedEvent

#: Seconds to wait after each failure: 1, 2, 4, up to an hour. 20 attempts take about 8 hours, a
#: night without an operator. After the last one, the event is dead.
RETRIES = tuple(min(2.0**number, 3600.0) for number in range(19))
#: A thread cannot be interrupted. If its process has ended, another one that shares the inbox takes
#: the event after this time.
THREAD_LEASE_SECONDS = 3600.0
#: The lease outlives the time limit, so that no event is handled twice at the same time.
LEASE_MARGIN_SECONDS = 30.0
#: How often the inbox is looked at: other processes may fill it.
IDLE_SECONDS = 1.0
#: Shortest pause, so that a wrong clock does not make it a busy loop.
MIN_IDLE_SECONDS = 0.02
MAX_ERROR_CHARS = 1000
#: How often the text of an error is offered to the store. Then it gets the error's type alone: the
#: text may be one that it never takes.
TEXT_TRIES = 3
_LOGGER = logging.getLogger("restive_client")
#: Pause before a result that the store did not take is written again.
STORE_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Context:
    #: The id by which the inbox knows the event: the same in every attempt. See ``Receiver``.
    id: str
    #: Number of this attempt, from 1.
    attempt: int
    #: A newer state of the resource was processed before.
    stale: bool = False


#: Called at least once for each event, and again after an error or a crash. To make its effect
#: happen exactly once, write the id of the event in the same transaction: see ``apply_once``.
Handler = Callable[[dict[str, Any], Context], object]
AsyncHandler = Callable[[dict[str, Any], Context], Union[Awaitable[object], object]]
#: Events whose resource has a newer state already. ``deliver``: the handler gets them with
#: ``context.stale``. ``skip``: it does not, and they are done. Right for a copy of the resource.
Stale = Literal["deliver", "skip"]
#: Called after each failed attempt, before the inbox has the result, and when the inbox refuses a
#: result, which is then written again. Without one, that is logged as a warning. What it raises is
#: ignored.
OnError = Callable[[Exception, Union[QueuedEvent, None], bool], None]


class _Steps:
    """What both workers do with the inbox."""

    def __init__(
        self,
        store: InboxStore,
        retries: Sequence[float],
        stale: Stale,
        on_error: OnError | None,
    ) -> None:
        if stale not in ("deliver", "skip"):
            raise ValueError(f'stale is "deliver" or "skip", not {stale!r}')
        require_plain(on_error=on_error)
        self.store = store
        self._skips_stale = stale == "skip"
        #: The clock of due times.
        self.now: Callable[[], float] = getattr(store, "now", None) or (lambda: time.time())
        self._retries = retries
        self._on_error = on_error

    def skips(self, event: QueuedEvent) -> bool:
        return event.stale and self._skips_stale

    def check(self, event: QueuedEvent) -> dict[str, Any]:
        if event.attempt > len(self._retries) + 1:
            raise RuntimeError("the process ended during the last attempt")
        parsed: dict[str, Any] = loads(event.body)
        return parsed

    def succeeded(self, event: QueuedEvent) -> Callable[[], None]:
        """Returns what writes the result to the store."""
        return lambda: self.store.complete(event.id)

    def failed(
        self, event: QueuedEvent, error: Exception, leased_until: float
    ) -> Callable[[], None]:
        """Reports it: the store may refuse the result for long. Returns what writes that."""
        at = event.attempt - 1
        dead = at >= len(self._retries)
        tries = itertools.repeat(_text_of(error), TEXT_TRIES)
        texts = itertools.chain(tries, itertools.repeat(type(error).__name__))
        retry_at = None if dead else self.now() + self._retries[at]
        self.report(error, event, dead)

        number = itertools.count(1)

        def write() -> None:
            # After the lease, the event is due again, and another process may have it.
            if next(number) == 1 or time.monotonic() < leased_until:
                self.store.fail(event.id, next(texts), retry_at)

        return write

    def report(self, error: Exception, event: QueuedEvent | None, dead: bool) -> None:
        # What fails in the report must not end the worker.
        with contextlib.suppress(Exception):
            (self._on_error or _log)(error, event, dead)

    def idle(self) -> float:
        next_due = self.store.next_due()
        wait = IDLE_SECONDS if next_due is None else next_due - self.now()
        return min(max(wait, MIN_IDLE_SECONDS), IDLE_SECONDS)


def _log(error: Exception, event: QueuedEvent | None, dead: bool) -> None:
    if event is None:
        _LOGGER.warning("the worker failed", exc_info=error)
        return
    ends = "the event is dead until it is retried" if dead else "it is tried again"
    _LOGGER.warning(
        "attempt %s to handle %s %s failed; %s",
        event.attempt, event.type, event.id, ends, exc_info=error,
    )


class Worker:
    """Handles events in threads. A handler that hangs keeps one of them: set time limits in it."""

    def __init__(
        self,
        store: InboxStore,
        handler: Handler,
        *,
        concurrency: int = 1,
        retries: Sequence[float] = RETRIES,
        stale: Stale = "deliver",
        on_error: OnError | None = None,
    ) -> None:
        if is_coroutine_function(handler):
            raise TypeError("the handler is a coroutine function: use AsyncWorker")
        self._steps = _Steps(store, retries, stale, on_error)
        self._handler = handler
        self._concurrency = concurrency
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._running: dict[str, float] = {}

    def start(self) -> Worker:
        """Begins to work, in daemon threads."""
        for number in range(self._concurrency):
            name = f"restive-worker-{number}"
            thread = threading.Thread(target=self._loop, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Ends after the calls in progress, or after the timeout."""
        self._stop.set()
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def running(self) -> dict[str, float]:
        """Ids of the events in progress, and for how many seconds. A large value is a hang."""
        now = time.monotonic()
        return {id: now - began for id, began in list(self._running.items())}

    def once(self) -> bool:
        """Handles one event that is due. False if there is none."""
        leased_until = time.monotonic() + THREAD_LEASE_SECONDS
        event = self._steps.store.claim(self._steps.now(), THREAD_LEASE_SECONDS)
        # A thread of this process still works on an event whose lease has ended.
        if event is None or event.id in self._running:
            return False
        self._running[event.id] = time.monotonic()
        try:
            self._write(event, self._handle(event, leased_until))
        finally:
            self._running.pop(event.id, None)
        return True

    def _handle(self, event: QueuedEvent, leased_until: float) -> Callable[[], None]:
        try:
            if not self._steps.skips(event):
                _require_done(self._handler(self._steps.check(event), _context(event)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._steps.failed(event, _failure(error), leased_until)
        return self._steps.succeeded(event)

    def _write(self, event: QueuedEvent, result: Callable[[], None]) -> None:
        """Repeats it: because the disk is full, an event that was handled must not be handled
        again, and one that has failed must not wait until its lease ends."""
        while True:
            try:
                return result()
            except Exception as error:
                if self._stop.is_set():
                    raise
                self._steps.report(error, event, False)
            self._stop.wait(STORE_RETRY_SECONDS)

    def _loop(self) -> None:
        while not self._stop.is_set():
            wait = IDLE_SECONDS
            try:
                wait = 0.0 if self.once() else self._steps.idle()
            except Exception as error:
                self._steps.report(error, None, False)
            if wait:
                self._stop.wait(wait)


class AsyncWorker:
    """Handles events in tasks; the handler may be a coroutine and has a time limit."""

    def __init__(
        self,
        store: InboxStore,
        handler: AsyncHandler,
        *,
        concurrency: int = 1,
        timeout: float = 30.0,
        retries: Sequence[float] = RETRIES,
        stale: Stale = "deliver",
        on_error: OnError | None = None,
    ) -> None:
        self._steps = _Steps(store, retries, stale, on_error)
        self._handler = handler
        self._concurrency = concurrency
        self._timeout = timeout
        #: Ids of the events in progress.
        self._running: set[str] = set()

    async def run(self) -> None:
        """Works until it is cancelled. A handler that raises ``CancelledError`` has failed."""
        await asyncio.gather(*(self._loop() for _ in range(self._concurrency)))

    async def once(self) -> bool:
        """Handles one event that is due. False if there is none."""
        store = self._steps.store
        lease = self._timeout + LEASE_MARGIN_SECONDS
        until = time.monotonic() + lease
        event = await asyncio.to_thread(store.claim, self._steps.now(), lease)
        # A clock that was set may end a lease early.
        if event is None or event.id in self._running:
            return False
        self._running.add(event.id)
        try:
            error = None if self._steps.skips(event) else await self._outcome(event)
            if error is None:
                result = self._steps.succeeded(event)
            else:
                result = await asyncio.to_thread(self._steps.failed, event, error, until)
            await self._write(event, result)
        finally:
            self._running.discard(event.id)
        return True

    async def _outcome(self, event: QueuedEvent) -> Exception | None:
        """Runs the handler; returns why it failed. A task of its own, because otherwise its
        cancellation and that of the worker look the same."""
        task = asyncio.ensure_future(self._call(event))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
            if not done:
                if await _cancel(task):
                    return None
                return TimeoutError(f"the handler did not end within {self._timeout} s")
        except asyncio.CancelledError:
            await _cancel(task)
            raise
        if task.cancelled():
            return RuntimeError("the handler was cancelled")
        error = task.exception()
        return None if error is None else _failure(error)

    async def _write(self, event: QueuedEvent, result: Callable[[], None]) -> None:
        """Repeats it, as that of ``Worker``."""
        while True:
            try:
                return await asyncio.to_thread(result)
            except Exception as error:
                self._steps.report(error, event, False)
            await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _call(self, event: QueuedEvent) -> None:
        try:
            result = self._handler(self._steps.check(event), _context(event))
            if inspect.isawaitable(result):
                await result
        except SystemExit as error:
            # The event loop would end, and nothing would be handled any more.
            raise _failure(error) from error

    async def _loop(self) -> None:
        while True:
            wait = IDLE_SECONDS
            try:
                wait = 0.0 if await self.once() else await asyncio.to_thread(self._steps.idle)
            except Exception as error:
                self._steps.report(error, None, False)
            await asyncio.sleep(wait)


def _require_done(result: object) -> None:
    """A coroutine that nothing awaits has done nothing."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the handler returned a coroutine, which nothing awaits: use AsyncWorker")


def _failure(error: BaseException) -> Exception:
    """What a handler raised, as an error of the event. Otherwise only its thread would end, and
    nothing would be handled any more."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit):
        failure = RuntimeError(f"the handler called sys.exit({error.code})")
    else:
        failure = RuntimeError(f"the handler raised {error!r}")
    failure.__cause__ = error
    return failure


def _text_of(error: Exception) -> str:
    """What the store gets. Half of a surrogate pair, from a body, cannot be stored."""
    name = type(error).__name__
    try:
        text = str(error) or name
    except Exception:
        text = name
    return text[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode()


def _context(event: QueuedEvent) -> Context:
    return Context(event.id, event.attempt, event.stale)


async def _cancel(task: asyncio.Future[None]) -> bool:
    """Ends a handler; whether it has ended well all the same. One that ignores this is left alone
    before its lease ends."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=LEASE_MARGIN_SECONDS / 2)
    # Without the last question, asyncio reports that nobody has asked for it.
    return bool(done) and not task.cancelled() and task.exception() is None
