"""By what events are ordered: the resource of an event, and which state of it the event has. The
rules are those of restive-kit."""

from __future__ import annotations

import re
from typing import Any

from ._json import loads

#: As many as a signed 64-bit number has.
_MAX_NUMBER = 2**63 - 1


def order_of(body: str) -> tuple[str | None, str | None]:
    """The resource, which is type and id of ``data.object``, and its revision. None if the body has
    no object with an id."""
    try:
        event = _members(loads(body))
    except (ValueError, RecursionError):
        return None, None
    object = _members(_members(event.get("data")).get("object"))
    id, type = object.get("id"), object.get("object")
    if not isinstance(id, str):
        return None, None
    resource = f"{type if isinstance(type, str) else ''} {id}"
    # Half of a surrogate pair cannot be stored.
    return resource.encode("utf-8", "replace").decode(), _revision(event, object)


def is_before(revision: str | None, other: str | None) -> bool:
    """Whether the resource has a newer state at the other revision. False if that cannot be known:
    two are comparable if they have the same first letter."""
    if revision is None or other is None:
        return False
    return revision[0] == other[0] and revision < other


def _revision(event: dict[str, Any], object: dict[str, Any]) -> str | None:
    """The time of the change, as restive writes it: ``version`` and ``updated`` can be fields of
    such a resource that mean something else. Then what other providers have, from the most to the
    least precise; last the second of the event."""
    time = object.get("updated_at")
    # Without the Z, a time with fewer digits sorts before one with more.
    if isinstance(time, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ -~]*Z", time):
        return f"t{time[:-1]}"
    return (
        _number("v", object.get("version"))
        or _number("s", event.get("sequence"))
        or _number("u", object.get("updated"))
        or _number("u", object.get("updated_at"))
        or _number("c", event.get("created"))
    )


def _number(mark: str, value: object) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        return None
    return f"{mark}{value:020}"


def _members(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
