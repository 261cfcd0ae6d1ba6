"""The durable queue between the receiver and the workers, in SQLite, and effects that happen
exactly once."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Literal, Optional, Protocol, TypeGuard

from ._order import is_before, order_of

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None  # type: ignore[assignment]

#: Longer ids are refused: they are the key of an index.
MAX_ID_BYTES = 255
#: How long ids are remembered: longer than the provider keeps events (30 days and 7 more).
REMEMBER_SECONDS = 40 * 24 * 3600.0
#: Where the clock of the open time ended; see ``SqliteInbox._open_time``.
_OPEN_TIME = "store.open_time"
#: How often that is stored. What a kill loses only keeps ids longer.
STORE_OPEN_TIME_SECONDS = 600.0
#: Providers wait 5 to 30 s. An answer that comes later counts as failed.
STORE_SECONDS = 4.0
#: Events that ``prune`` removes at once: some milliseconds, in which nothing else is stored.
PRUNE_SLICE = 500
#: And then lets others write, who only look now and then whether they may.
PRUNE_PAUSE_SECONDS = 0.01

#: The longest delay of a retry so far; see ``SqliteInbox._limit_times``.
_LONGEST_DELAY = "store.longest_delay"
#: That of the ``retries`` of a worker by default.
DEFAULT_LONGEST_SECONDS = 3600.0
#: A longer delay than ids are remembered comes from a clock that was set.
MAX_DELAY_SECONDS = REMEMBER_SECONDS
#: How often the idle workers of a shared inbox look for times that a wrong clock has written.
LIMIT_SECONDS = 60.0

#: What a claim returns, see ``_CLAIM``.
Row = tuple[str, str, str, int, Optional[str], Optional[str]]
Put = Literal["stored", "known", "different"]


@dataclass(frozen=True)
class QueuedEvent:
    id: str
    type: str
    #: JSON text, as it was received.
    body: str
    #: Number of this attempt, from 1.
    attempt: int
    #: A newer state of its resource was processed before.
    stale: bool = False


@dataclass(frozen=True)
class DeadEvent:
    id: str
    type: str
    attempts: int
    error: str


def is_usable_id(id: object) -> TypeGuard[str]:
    """Whether a value can be the id of an event."""
    if not isinstance(id, str):
        return False
    try:
        return 1 <= len(id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False  # Half of a surrogate pair is no text.


def text_of(type: object) -> str:
    """The type of an event: empty if it is no text. Half of a surrogate pair cannot be stored."""
    return type.encode("utf-8", "replace").decode() if isinstance(type, str) else ""


class InboxStore(Protocol):
    """What receivers and workers need. Its methods are called from several threads.

    A store may also have ``now() -> float``: the clock of ``claim``, ``fail`` and ``next_due``, in
    Unix seconds. Without it, workers use the clock of the machine, and an event that fails while
    that is ahead is due too late.
    """

    def put(self, id: str, type: str, body: str, fingerprint: str) -> Put:
        """Stores an event unless its id is known. Returns when it is durable.

        ``different``: the id is known with another fingerprint.
        """

    def claim(self, now: float, lease: float) -> QueuedEvent | None:
        """Takes one event that is due, for ``lease`` seconds.

        ``SqliteInbox`` gives out one event of a resource (type and id of ``data.object``) at a
        time, and sets ``stale``.
        """

    def complete(self, id: str) -> None: ...

    def fail(self, id: str, error: str, retry_at: float | None) -> None:
        """``retry_at`` None: the event is dead until ``retry``."""

    def next_due(self) -> float | None: ...

    def setting(self, name: str) -> str | None: ...

    def set_setting(self, name: str, value: str) -> None: ...


_TABLES = """
CREATE TABLE IF NOT EXISTS restive_inbox (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT,
  fingerprint TEXT NOT NULL, received_at REAL NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL, due_at REAL NOT NULL, leased_until REAL NOT NULL, error TEXT);
CREATE TABLE IF NOT EXISTS restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

#: The newest processed state of each resource. A trigger, so that it changes with the state of the
#: event. A revision of another kind replaces it: the provider has changed its format.
_ORDER = """
DROP INDEX IF EXISTS restive_inbox_due;
CREATE INDEX IF NOT EXISTS restive_inbox_next ON restive_inbox (due_at, number, resource)
  WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS restive_inbox_leased ON restive_inbox (resource) WHERE leased_until > 0;
CREATE INDEX IF NOT EXISTS restive_inbox_old ON restive_inbox (received_at) WHERE state = 'done';
CREATE TABLE IF NOT EXISTS restive_newest (
  resource TEXT PRIMARY KEY, revision TEXT NOT NULL, received_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS restive_newest_old ON restive_newest (received_at);
CREATE TRIGGER IF NOT EXISTS restive_inbox_done AFTER UPDATE OF state ON restive_inbox
  WHEN new.state = 'done' AND new.resource IS NOT NULL AND new.revision IS NOT NULL
BEGIN
  INSERT INTO restive_newest VALUES (new.resource, new.revision, new.received_at)
  ON CONFLICT (resource) DO UPDATE SET
    revision = excluded.revision, received_at = excluded.received_at
  WHERE substr(restive_newest.revision, 1, 1) <> substr(excluded.revision, 1, 1)
    OR restive_newest.revision <= excluded.revision;
END;
"""

#: The first event that is due and whose resource has none in progress. Those of a busy resource are
#: passed by the index alone, however many they are. New events are due at 0, so that no clock hides
#: them; the second parameter can leave them out. The `+`: for a column of a row that is returned,
#: SQLite does not use the primary key, and reads all of `restive_newest`.
_CLAIM = """
UPDATE restive_inbox SET leased_until = ?, attempts = attempts + 1 WHERE number = (
  SELECT number FROM restive_inbox INDEXED BY restive_inbox_next
  WHERE state = 'pending' AND due_at > ? AND due_at <= ?
    AND (resource IS NULL OR resource NOT IN (
      SELECT resource FROM restive_inbox INDEXED BY restive_inbox_leased
      WHERE leased_until > 0 AND leased_until > ? AND state = 'pending'
        AND resource IS NOT NULL))
    AND leased_until <= ?
  ORDER BY due_at, number LIMIT 1)
RETURNING id, type, body, attempts, revision, (
  SELECT newest.revision FROM restive_newest AS newest
  WHERE newest.resource = +restive_inbox.resource)
"""

#: An event waits for the one of its resource that is in progress, so those in progress are enough,
#: and the first one whose resource has none.
_NEXT_DUE = """
SELECT min(at) FROM (
  SELECT min(max(due_at, leased_until)) AS at FROM restive_inbox INDEXED BY restive_inbox_leased
  WHERE leased_until > 0 AND state = 'pending'
  UNION ALL SELECT at FROM (
    SELECT due_at AS at FROM restive_inbox INDEXED BY restive_inbox_next
    WHERE state = 'pending' AND (resource IS NULL OR resource NOT IN (
      SELECT resource FROM restive_inbox INDEXED BY restive_inbox_leased
      WHERE leased_until > 0 AND state = 'pending' AND resource IS NOT NULL))
      AND leased_until = 0
    ORDER BY due_at, number LIMIT 1))
"""

#: Whether an event is due or leased later than it can be.
_IS_LATE = """
SELECT EXISTS (SELECT 1 FROM restive_inbox INDEXED BY restive_inbox_next
    WHERE state = 'pending' AND due_at > ?)
  OR EXISTS (SELECT 1 FROM restive_inbox INDEXED BY restive_inbox_leased
    WHERE leased_until > 0 AND leased_until > ? AND state = 'pending')
"""

_PRUNE = """
DELETE FROM restive_inbox WHERE number IN (
  SELECT number FROM restive_inbox INDEXED BY restive_inbox_old
  WHERE state = 'done' AND received_at < ? LIMIT ?)
"""
_PRUNE_NEWEST = """
DELETE FROM restive_newest WHERE resource IN (
  SELECT resource FROM restive_newest INDEXED BY restive_newest_old
  WHERE received_at < ? LIMIT ?)
"""


class SqliteInbox:
    """An inbox in one SQLite file.

    ``shared``: other processes work on this inbox too. Otherwise the events that an earlier process
    had taken when it was killed are due at once, not when their lease ends, and a second process
    that opens the inbox gets a ``RuntimeError``.

    SQLite does not survive ``fork``: a process that was forked after the inbox was opened gets a
    ``RuntimeError`` when it uses it.
    """

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_shared = shared
        self._guard = _guard(path, shared)
        try:
            self._open(path)
        except BaseException:
            if self._guard:
                self._guard.close()
            raise

    def _open(self, path: str | os.PathLike[str]) -> None:
        _create(path)
        # Statements commit by themselves: each change is one statement.
        self._db = sqlite3.connect(
            path, timeout=STORE_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        # An acknowledged event survives a power cut.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)
        _add_order(self._db)
        self._db.executescript(_ORDER)
        if not self._is_shared:
            self._db.execute("UPDATE restive_inbox SET leased_until = 0 WHERE leased_until > 0")
        self._opened = time.monotonic()
        self._opened_at = self._start_clock()
        self._begin = time.time() - self._opened
        self._longest_delay = DEFAULT_LONGEST_SECONDS
        self._limit_times(self._db, self.now(), 0.0)
        self._is_turn_of_failed = False
        #: When an idle worker limits the times again.
        self._limit_at = 0.0

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "the inbox was opened in another process, before a fork, and SQLite does not"
                " survive that. Open it in this process, with shared=True in all of them: for"
                " gunicorn without --preload, or in the hook post_fork"
            )

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # The files and the lock are those of the process that opened them.
        with self._lock:
            # If it fails, ids are kept longer.
            with contextlib.suppress(sqlite3.Error):
                self._open_time(self._db, is_last=True)
            self._db.close()
            if self._guard:
                self._guard.close()

    def now(self) -> float:
        """A clock that does not jump when that of the machine is set. Processes that share the
        inbox must have the same one, so theirs is that of the machine."""
        self._require_own_process()
        return time.time() if self._is_shared else self._begin + time.monotonic()

    def _limit_times(self, db: sqlite3.Connection, now: float, lease: float) -> None:
        """A time that is later than the longest delay was written while the clock was ahead. It
        would keep its event until then."""
        row = db.execute(
            "SELECT value FROM restive_settings WHERE name = ?", (_LONGEST_DELAY,)
        ).fetchone()
        stored = min(float(row[0]), MAX_DELAY_SECONDS) if row else 0.0
        self._longest_delay = max(self._longest_delay, stored)
        limit = now + max(self._longest_delay, lease)
        # Usually there is none. Then nothing is locked, and not all events are read.
        if not db.execute(_IS_LATE, (limit, limit)).fetchone()[0]:
            return
        db.execute(
            "UPDATE restive_inbox SET due_at = min(due_at, ?), leased_until = min(leased_until, ?)"
            " WHERE state = 'pending' AND (due_at > ? OR leased_until > ?)",
            (now, now + lease, limit, limit),
        )

    def _store_delay(self, db: sqlite3.Connection, delay: float) -> None:
        """Other processes and later ones must know it."""
        if self._longest_delay < delay <= MAX_DELAY_SECONDS:
            self._longest_delay = delay
            _store_highest(db, _LONGEST_DELAY, delay)

    def _start_clock(self) -> float:
        stored = self.setting(_OPEN_TIME)
        if stored is not None:
            return float(stored)
        newest = self._db.execute("SELECT max(received_at) FROM restive_inbox").fetchone()[0]
        now = time.time()
        begin = now if newest is None else min(now, float(newest))
        # Received by a release that used the clock of the machine, which was ahead: their age
        # counts from here.
        self._db.execute(
            "UPDATE restive_inbox SET received_at = ? WHERE received_at > ?", (begin, begin)
        )
        self.set_setting(_OPEN_TIME, repr(begin))
        return begin

    def _open_time(self, db: sqlite3.Connection, *, is_last: bool = False) -> float:
        """A clock that counts only while the inbox is open, for the age of ids.

        A clock of the machine that is or was wrong must not make the inbox forget them. If several
        processes have the inbox open, the clock that is ahead counts for all.
        """
        row = db.execute(
            "SELECT value FROM restive_settings WHERE name = ?", (_OPEN_TIME,)
        ).fetchone()
        stored = float(row[0]) if row else 0.0
        own = self._opened_at + time.monotonic() - self._opened
        if stored > own:
            self._opened_at += stored - own
            return stored
        if is_last or own - stored >= STORE_OPEN_TIME_SECONDS:
            _store_highest(db, _OPEN_TIME, own)
        return own

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        self._require_own_process()
        if not self._lock.acquire(timeout=STORE_SECONDS):
            raise TimeoutError(f"the inbox was busy for {STORE_SECONDS} s")
        try:
            yield self._db
        finally:
            self._lock.release()

    def put(self, id: str, type: str, body: str, fingerprint: str) -> Put:
        order = order_of(body)
        with self._use() as db:
            inserted = db.execute(
                "INSERT INTO restive_inbox (id, type, body, fingerprint, received_at, resource,"
                " revision, state, attempts, due_at, leased_until)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', 0, 0, 0) ON CONFLICT (id) DO NOTHING",
                (id, type, body, fingerprint, self._open_time(db), *order),
            )
            if inserted.rowcount > 0:
                return "stored"
            known = db.execute("SELECT fingerprint FROM restive_inbox WHERE id = ?", (id,))
            row = known.fetchone()
        # A list may show an event in another version than its endpoint receives, so reconciled
        # events have no fingerprint.
        same = row is not None and (row[0] == fingerprint or "" in (row[0], fingerprint))
        return "known" if same else "different"

    def claim(self, now: float, lease: float) -> QueuedEvent | None:
        with self._use() as db:
            # The time in which a worker waits counts, also if the process is killed.
            self._open_time(db)
            rows = self._claim(db, now, lease)
            if not rows and self._is_shared and time.monotonic() >= self._limit_at:
                self._limit_times(db, now, lease)
                self._limit_at = time.monotonic() + LIMIT_SECONDS
        if not rows:
            return None
        id, type, body, attempt, revision, newest = rows[0]
        return QueuedEvent(id, type, body, attempt, is_before(revision, newest))

    def _claim(self, db: sqlite3.Connection, now: float, lease: float) -> list[Row]:
        """By the due time, new events first. But after a new one, a failed one has its turn:
        otherwise it would wait as long as new ones come."""
        rows: list[Row] = []
        if self._is_turn_of_failed:
            rows = db.execute(_CLAIM, (now + lease, 0, now, now, now)).fetchall()
        if not rows:
            rows = db.execute(_CLAIM, (now + lease, -1, now, now, now)).fetchall()
        self._is_turn_of_failed = bool(rows) and rows[0][3] == 1
        return rows

    def complete(self, id: str) -> None:
        with self._use() as db:
            db.execute(
                "UPDATE restive_inbox SET state = 'done', body = NULL, leased_until = 0,"
                " error = NULL WHERE id = ?",
                (id,),
            )

    def fail(self, id: str, error: str, retry_at: float | None) -> None:
        state = "dead" if retry_at is None else "pending"
        with self._use() as db:
            if retry_at is not None:
                self._store_delay(db, retry_at - self.now())
            db.execute(
                "UPDATE restive_inbox SET state = ?, due_at = ?, leased_until = 0, error = ?"
                " WHERE id = ? AND state = 'pending'",
                (state, retry_at or 0, error, id),
            )

    def next_due(self) -> float | None:
        with self._use() as db:
            row = db.execute(_NEXT_DUE).fetchone()
        return None if row[0] is None else float(row[0])

    def counts(self) -> dict[str, int]:
        """Number of events by state: ``pending``, ``done``, ``dead``."""
        with self._use() as db:
            rows = db.execute("SELECT state, count(*) FROM restive_inbox GROUP BY state").fetchall()
        return {"pending": 0, "done": 0, "dead": 0, **dict(rows)}

    def dead(self, limit: int = 100) -> list[DeadEvent]:
        with self._use() as db:
            rows = db.execute(
                "SELECT id, type, attempts, error FROM restive_inbox WHERE state = 'dead'"
                " ORDER BY number LIMIT ?",
                (limit,),
            ).fetchall()
        return [DeadEvent(*row) for row in rows]

    def retry(self, id: str) -> bool:
        """Makes a dead event due again."""
        with self._use() as db:
            changed = db.execute(
                "UPDATE restive_inbox SET state = 'pending', attempts = 0, due_at = 0"
                " WHERE id = ? AND state = 'dead'",
                (id,),
            )
        return changed.rowcount > 0

    def prune(self, before: float | None = None) -> int:
        """Forgets completed events that were received before this time; default: 40 days ago.

        Only time in which the inbox is open counts, so a wrong clock makes it forget no id.
        """
        age = REMEMBER_SECONDS if before is None else time.time() - before
        with self._use() as db:
            limit = self._open_time(db) - age
        removed = self._remove(_PRUNE, limit)
        self._remove(_PRUNE_NEWEST, limit)
        return removed

    def _remove(self, statement: str, limit: float) -> int:
        removed = 0
        while True:
            with self._use() as db:
                count = db.execute(statement, (limit, PRUNE_SLICE)).rowcount
            removed += count
            if count < PRUNE_SLICE:
                return removed
            time.sleep(PRUNE_PAUSE_SECONDS)

    def setting(self, name: str) -> str | None:
        with self._use() as db:
            row = db.execute(
                "SELECT value FROM restive_settings WHERE name = ?", (name,)
            ).fetchone()
        return row[0] if row else None

    def set_setting(self, name: str, value: str) -> None:
        with self._use() as db:
            db.execute(
                "INSERT INTO restive_settings (name, value) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )


def _add_order(db: sqlite3.Connection) -> None:
    """Tables of earlier releases have no resources. Events that wait get theirs."""
    # Usually it is there. Then nothing is locked: another process may be writing.
    if _has_order(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _has_order(db):
            for name in ("resource", "revision"):
                db.execute(f"ALTER TABLE restive_inbox ADD COLUMN {name} TEXT")
            rows = db.execute("SELECT number, body FROM restive_inbox WHERE body IS NOT NULL")
            orders = [(*order_of(body), number) for number, body in rows]
            db.executemany(
                "UPDATE restive_inbox SET resource = ?, revision = ? WHERE number = ?", orders
            )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _has_order(db: sqlite3.Connection) -> bool:
    columns = db.execute("SELECT 1 FROM pragma_table_info('restive_inbox') WHERE name = 'revision'")
    return columns.fetchone() is not None


def _store_highest(db: sqlite3.Connection, name: str, value: float) -> None:
    """Unless another process has stored a higher value."""
    db.execute(
        "INSERT INTO restive_settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        " WHERE CAST(value AS REAL) < CAST(excluded.value AS REAL)",
        (name, repr(value)),
    )


def _guard(path: str | os.PathLike[str], shared: bool) -> IO[bytes] | None:
    """A lock beside the file, which ends with the process: one process has the inbox open, or all
    have it open with ``shared``."""
    if fcntl is None or os.fspath(path) in ("", ":memory:"):
        return None
    place = os.path.realpath(path)
    file = open(f"{place}.lock", "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise RuntimeError(
            f"{place} is open already, in another process or in this one. If several processes work"
            " on this inbox, all of them must open it with shared=True"
        ) from None
    except OSError:
        # Some network file systems have no such locks.
        file.close()
        return None
    return file


def _create(path: str | os.PathLike[str]) -> None:
    """Events contain data of customers: a new file is for its owner only. SQLite gives the files
    beside it the same mode."""
    if os.fspath(path) in ("", ":memory:"):
        return
    # What fails here, fails again in SQLite, which says why.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def apply_once(
    connection: sqlite3.Connection,
    event_id: str,
    effect: Callable[[sqlite3.Connection], object],
) -> bool:
    """Runs the effect in a transaction of your own database, together with the id of the event.

    However often the event is handled, the effect happens once. Returns False if it had happened
    before. The effect must not commit.
    """
    connection.execute(
        "CREATE TABLE IF NOT EXISTS restive_applied (id TEXT PRIMARY KEY) WITHOUT ROWID"
    )
    connection.execute("BEGIN IMMEDIATE")
    try:
        inserted = connection.execute(
            "INSERT INTO restive_applied (id) VALUES (?) ON CONFLICT DO NOTHING", (event_id,)
        )
        is_new = inserted.rowcount > 0
        if is_new:
            effect(connection)
        connection.execute("COMMIT")
        return is_new
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
