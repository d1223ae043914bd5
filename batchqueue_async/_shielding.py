"""Keeps anyio's cancel scopes from cutting off what leaves an `async with` block.

A cancel scope cancels at every `await`, again and again, so that nothing that takes
time could be done on the way out. A native `Task.cancel` strikes once, and is let
through.
"""

from __future__ import annotations

import asyncio
import sys
from functools import lru_cache
from types import TracebackType
from typing import Any

import anyio

_BACKEND = "anyio._backends._asyncio"


class Shielded:
    """`with Shielded():` cancel scopes around the block wait until it is left."""

    __slots__ = ("_scope", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._scope: anyio.CancelScope | None = None

    def __enter__(self) -> None:
        # A coroutine that is stepped by hand, or runs under Trio, has no task of
        # asyncio's, and so no scope of asyncio's either.
        if asyncio._get_running_loop() is not None:  # noqa: SLF001
            self._task = asyncio.current_task()
        if self._task is not None and _may_be_scoped():
            self._scope = anyio.CancelScope(shield=True)
            self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, scope = self._task, self._scope
        if task is None or scope is None:
            return
        # A coroutine that is closed along with its loop is outside of its task then,
        # where a scope can't be left.
        if asyncio.current_task(task.get_loop()) is task:
            scope.__exit__(kind, error, trace)


def _may_be_scoped() -> bool:
    """Whether there may be cancel scopes: there are none before anyio's backend.

    Importing that takes some 20 ms, which a program without anyio need not spend. If
    anyio has it no longer there, scopes are assumed.
    """
    return _BACKEND in sys.modules or not backend_is_where_it_was()


@lru_cache(maxsize=1)
def backend_is_where_it_was() -> bool:
    """Whether anyio's backend has the name by which it is looked for here.

    Asked first when something opens that will be left. By then the process may be able
    to open no more files, or its installation may have been replaced: leaving needs
    neither.
    """
    try:
        import importlib.util  # noqa: PLC0415 - slow to import, and rarely needed

        return importlib.util.find_spec(_BACKEND) is not None
    except Exception:  # noqa: BLE001 - of the file system, or of a program's own finder
        # Who can't look for it has not imported it, either.
        return True
