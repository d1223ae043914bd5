"""Functions of the user's, looked at before any task runs."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from batchqueue_async._validation import refuse, require_callable


def require_call(call: object, *, has_client: bool) -> None:
    """Refuse what is no async function, or takes other arguments.

    What is written in C, or marked as a coroutine function, is taken at its word.
    """
    require_callable("call", call)
    if not _is_async(call) and isinstance(_python_function(call), types.FunctionType):
        refuse("call", "an async function (async def)", call, TypeError)
    wanted = ("client", "batch") if has_client else ("batch",)
    which = "with" if has_client else "without"
    _require_arguments("call", call, wanted, f" {which} open")


def require_open(opener: object) -> None:
    """Refuse what will not return an async context manager, if that can be seen."""
    require_callable("open", opener)
    rule = "a function that returns an async context manager"
    function = _python_function(opener)
    # What `asynccontextmanager` and `contextmanager` make calls what it was made of.
    made_of = getattr(function, "__wrapped__", None)
    if _is_async(opener) or inspect.isasyncgenfunction(function):
        refuse("open", f"{rule} (as @asynccontextmanager makes it)", opener, TypeError)
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(made_of):
        refuse("open", f"{rule}, not a plain one", opener, TypeError)
    if isinstance(opener, type) and not hasattr(opener, "__aenter__"):
        refuse("open", rule, opener, TypeError)
    _require_arguments("open", opener, (), "")


def _is_async(call: Any) -> bool:  # noqa: ANN401 - anything that can be called
    functions = [call, inspect.unwrap(call), type(call).__call__]
    return any(map(inspect.iscoroutinefunction, functions))


def _python_function(call: Any) -> object:  # noqa: ANN401 - anything that can be called
    """Return the function that runs first, if it is known."""
    while isinstance(call, functools.partial):
        call = call.func
    if isinstance(call, types.MethodType):
        return call.__func__
    if inspect.isroutine(call) or isinstance(call, type):
        return call
    return type(call).__call__


def _require_arguments(
    field: str,
    call: Any,  # noqa: ANN401 - anything that can be called
    wanted: tuple[str, ...],
    when: str,
) -> None:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        # Written in C: it says so itself when it is called.
        return
    try:
        signature.bind(*wanted)
    except TypeError as error:
        msg = f"{field} must take ({', '.join(wanted)}){when}: {error}"
        raise TypeError(msg) from None
