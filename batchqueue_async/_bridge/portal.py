"""Anyio's portal, which in a forked child says so instead of waiting for ever."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal

from batchqueue_async._bridge.at_exit import refuse_inherited

R = TypeVar("R")


class Portal(BlockingPortal):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._process = os.getpid()

    # All other calls of a portal come by one of these two.

    def start_task_soon(  # type: ignore[override]
        self,
        func: Callable[..., Awaitable[R]],
        *args: Any,  # noqa: ANN401
        name: object = None,
    ) -> Future[R]:
        refuse_inherited(self._name, self._process)
        return super().start_task_soon(func, *args, name=name)

    def start_task(
        self,
        func: Callable[..., Awaitable[Any]],
        *args: Any,  # noqa: ANN401
        name: object = None,
    ) -> tuple[Future[Any], Any]:
        refuse_inherited(self._name, self._process)
        return super().start_task(func, *args, name=name)
