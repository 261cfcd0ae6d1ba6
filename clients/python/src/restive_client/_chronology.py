"""The order of events that are read from a list: oldest first. Otherwise the deletion of a resource
would be handled before its creation."""

from __future__ import annotations

from dataclasses import dataclass

#: Events of a list with the newest first are turned around in memory, a longer list in parts.
MAX_HELD_CHARS = 32 * 1024 * 1024
#: An event needs about as much besides its text.
EVENT_CHARS = 256


@dataclass(frozen=True)
class Listed:
    id: str
    type: str
    body: str
    #: Unix seconds.
    created: int | None


class Chronology:
    """Returns the events of a list in the order in which they were created.

    The provider is asked for the oldest first, but a list in the form of Stripe knows no order and
    begins with the newest. The first two events of different seconds show it.
    """

    def __init__(self) -> None:
        self._held: list[Listed] = []
        self._chars = 0
        self._first: int | None = None
        self._is_reversed: bool | None = None

    def push(self, event: Listed) -> list[Listed]:
        """Takes the next event of the list. Returns those whose turn it is."""
        created = event.created
        if created is not None:
            first = self._first = created if self._first is None else self._first
            if self._is_reversed is None and created != first:
                self._is_reversed = created < first
        self._held.append(event)
        self._chars += len(event.body) + EVENT_CHARS
        waits = self._is_reversed is not False and self._chars <= MAX_HELD_CHARS
        return [] if waits else self.rest()

    def rest(self) -> list[Listed]:
        """What is left at the end of the list."""
        held, self._held, self._chars = self._held, [], 0
        return held[::-1] if self._is_reversed else held
