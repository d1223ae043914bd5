"""What a handler's methods look like is checked when it is registered.

Found later, a mistake fails the first batch, which may be at night.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, cast

from batchqueue_async._validation import refuse, require_positive

from .warning import warn

HOOKS: Final = ("on_open", "on_idle", "on_tick", "on_flush", "on_close")
"""The optional methods of a handler."""

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def require_handler(field: str, value: object) -> None:
    """Refuse what cannot take a batch, a handler's class, and hooks of a wrong form.

    Warns of a method whose name is nearly that of a hook: nobody would call it.
    """
    consume = getattr(value, "consume", None)
    if isinstance(value, type) and callable(consume):
        refuse(field, "a handler, not its class", value, TypeError)
    if not callable(consume):
        if not callable(value):
            rule = "callable or have a consume method"
            refuse(field, rule, value, TypeError)
        _require_form(field, value, 1, "one argument, the batch")
        return
    _require_form(f"consume of {field}", consume, 1, "one argument, the batch")
    for name in HOOKS:
        hook = getattr(value, name, None)
        if callable(hook):
            _require_form(f"{name} of {field}", hook, 0, "no argument")
    if callable(getattr(value, "on_tick", None)):
        require_positive(f"tick_every of {field}", getattr(value, "tick_every", None))
    _warn_of_misspelt(type(value))


def consume_of(handler: object) -> Callable[[list[Any]], Any]:
    """Return the callable that takes a batch."""
    require_handler("handler", handler)
    consume = getattr(handler, "consume", handler)
    return cast("Callable[[list[Any]], Any]", consume)


def is_async(call: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )


def _require_form(
    field: str, call: Callable[..., Any], arguments: int, told: str
) -> None:
    code, given = _code_of(call, arguments)
    if code is None:
        if not _binds(call, arguments):
            refuse(field, f"callable with {told}", call, TypeError)
        return
    if code.co_flags & _GENERATORS:
        refuse(field, "no generator function", call, TypeError)
    # Faster than `_binds` by far: there may be thousands of handlers.
    is_plain = code.co_argcount == given and not code.co_kwonlyargcount
    if not is_plain and not _binds(call, arguments):
        refuse(field, f"callable with {told}", call, TypeError)


def _code_of(call: object, arguments: int) -> tuple[CodeType | None, int]:
    """Return a function's code, and what that is given of so many arguments."""
    if isinstance(call, MethodType) and isinstance(call.__func__, FunctionType):
        return call.__func__.__code__, arguments + 1
    if isinstance(call, FunctionType):
        return call.__code__, arguments
    method = getattr(type(call), "__call__", None)  # noqa: B004 - what, not whether
    if isinstance(method, FunctionType):
        return method.__code__, arguments + 1
    return None, 0


def _binds(call: Callable[..., Any], arguments: int) -> bool:
    try:
        # What is called counts, not what a decorator has wrapped.
        signature = inspect.signature(call, follow_wrapped=False)
    except (TypeError, ValueError):
        # Of much that is written in C nobody knows it.
        return True
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        return False
    return True


def _warn_of_misspelt(handler: type) -> None:
    for base in handler.__mro__[:-1]:
        for name, value in vars(base).items():
            if name[:2] == "on" and name not in HOOKS and callable(value):
                _warn_if_near(handler, name)


def _warn_if_near(handler: type, name: str) -> None:
    from difflib import get_close_matches  # noqa: PLC0415 - hardly ever needed

    near = get_close_matches(name.lower(), HOOKS, 1, cutoff=0.8)
    if near:
        warn(f"{handler.__qualname__}.{name} is never called: did you mean {near[0]}?")
