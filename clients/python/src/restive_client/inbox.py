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
from typing import Literal, Protocol

#: How long ids are remembered: longer than the provider keeps events (30 days and 7 more).
REMEMBER_SECONDS = 40 * 24 * 3600.0
#: Providers wait 5 to 30 s. An answer that comes later counts as failed.
STORE_SECONDS = 4.0

Put = Literal["stored", "known", "different"]


@dataclass(frozen=True)
class QueuedEvent:
    id: str
    type: str
    #: JSON text, as it was received.
    body: str
    #: Number of this attempt, from 1.
    attempt: int


@dataclass(frozen=True)
class DeadEvent:
    id: str
    type: str
    attempts: int
    error: str


class InboxStore(Protocol):
    """What receivers and workers need. Its methods are called from several threads."""

    def put(self, id: str, type: str, body: str, fingerprint: str) -> Put:
        """Stores an event unless its id is known. Returns when it is durable.

        ``different``: the id is known with another fingerprint.
        """

    def claim(self, now: float, lease: float) -> QueuedEvent | None:
        """Takes one event that is due, for ``lease`` seconds."""

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
CREATE INDEX IF NOT EXISTS restive_inbox_due ON restive_inbox (due_at, number)
  WHERE state = 'pending';
CREATE TABLE IF NOT EXISTS restive_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_CLAIM = """
UPDATE restive_inbox SET leased_until = ?, attempts = attempts + 1 WHERE number = (
  SELECT number FROM restive_inbox WHERE state = 'pending' AND due_at <= ? AND leased_until <= ?
  ORDER BY due_at, number LIMIT 1)
RETURNING id, type, body, attempts
"""


class SqliteInbox:
    """An inbox in one SQLite file.

    ``shared``: other processes work on this inbox too. Otherwise the events that an earlier process
    had taken when it was killed are due at once, not when their lease ends.
    """

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        self._lock = threading.Lock()
        _create(path)
        # Statements commit by themselves: each change is one statement.
        self._db = sqlite3.connect(
            path, timeout=STORE_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        # An acknowledged event survives a power cut.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)
        if not shared:
            self._db.execute("UPDATE restive_inbox SET leased_until = 0 WHERE leased_until > 0")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        if not self._lock.acquire(timeout=STORE_SECONDS):
            raise TimeoutError(f"the inbox was busy for {STORE_SECONDS} s")
        try:
            yield self._db
        finally:
            self._lock.release()

    def put(self, id: str, type: str, body: str, fingerprint: str) -> Put:
        with self._use() as db:
            inserted = db.execute(
                "INSERT INTO restive_inbox (id, type, body, fingerprint, received_at, state,"
                " attempts, due_at, leased_until) VALUES (?, ?, ?, ?, ?, 'pending', 0, 0, 0)"
                " ON CONFLICT (id) DO NOTHING",
                (id, type, body, fingerprint, time.time()),
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
            rows = db.execute(_CLAIM, (now + lease, now, now)).fetchall()
        return QueuedEvent(*rows[0]) if rows else None

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
            db.execute(
                "UPDATE restive_inbox SET state = ?, due_at = ?, leased_until = 0, error = ?"
                " WHERE id = ? AND state = 'pending'",
                (state, retry_at or 0, error, id),
            )

    def next_due(self) -> float | None:
        with self._use() as db:
            row = db.execute(
                "SELECT min(max(due_at, leased_until)) FROM restive_inbox WHERE state = 'pending'"
            ).fetchone()
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
        """Forgets completed events that were received before this time; default: 40 days ago."""
        limit = before
        with self._use() as db:
            if limit is None:
                # A clock that is far ahead must not make it forget what has just arrived.
                newest = db.execute("SELECT max(received_at) FROM restive_inbox").fetchone()[0]
                limit = min(time.time(), newest or 0.0) - REMEMBER_SECONDS
            removed = db.execute(
                "DELETE FROM restive_inbox WHERE state = 'done' AND received_at < ?", (limit,)
            )
        return removed.rowcount

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
