"""Reads JSON of others: also numbers that ``json`` refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: Python refuses to convert more, because that takes long.
MAX_INT_DIGITS = 4300


def loads(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """``json.loads``. An integer of more than 4,300 digits is a float, and infinite, as in
    JavaScript."""
    return json.loads(text, parse_int=_whole, parse_constant=parse_constant)


def count_members(text: str, name: str) -> int:
    """How often the object has this member. ``json`` returns the last one."""
    # The hook gets the outermost object last.
    names: list[str] = []

    def hook(pairs: list[tuple[str, Any]]) -> None:
        names[:] = [found for found, _ in pairs]

    json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=hook)
    return names.count(name)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else float(digits)
