"""Functions of the caller."""

from __future__ import annotations

import inspect


def require_plain(**functions: object) -> None:
    """Raises ``TypeError`` for a coroutine function, where nothing would await it."""
    for name, function in functions.items():
        if is_coroutine_function(function):
            raise TypeError(f"{name} is a coroutine function, and nothing awaits it here")


def is_coroutine_function(function: object) -> bool:
    """Also of an object that can be called."""
    call = getattr(function, "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
