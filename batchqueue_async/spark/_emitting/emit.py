"""How handlers hand rows to Spark."""

from __future__ import annotations

import threading
from asyncio import _get_running_loop
from collections.abc import Generator, Iterable
from typing import Any

from .output import Output


class Emit:
    """Hands rows to the task of Spark's that its queue belongs to; on any thread.

    `emit(row)` and `emit.many(rows)` take the rows at once. On the loop they never
    block; `await emit(row)` then waits while the output is full, and with it the
    handler, its queue and Spark's input. Without the `await` the queue gets no more
    input while the output is full, but goes on with what it holds. On a thread of a
    handler's (`in_thread`) they block while the output is full.

    A row is a dict with all columns of the schema (others are ignored), a Row or
    NamedTuple, also by name, or a tuple, by position.

    Raises:
        BatchQueueError: The task is over.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._room = _Room(output)
        self._task_thread = threading.get_ident()

    # As awaitables the results would have to be awaited, say type checkers.

    def __call__(self, row: Any) -> Any:  # noqa: ANN401
        """Emit one row; the result need not be awaited."""
        return self.many((row,))

    def many(self, rows: Iterable[Any]) -> Any:  # noqa: ANN401
        """Emit rows in their order; the result need not be awaited."""
        self._output.add(rows if isinstance(rows, tuple | list) else [*rows])
        # The task's own thread takes the rows: it must not wait for itself.
        if _get_running_loop() is None and threading.get_ident() != self._task_thread:
            self._output.wait_here()
        return self._room


class _Room:
    """Waits for room when it is awaited, and costs nothing when it isn't."""

    __slots__ = ("_output",)

    def __init__(self, output: Output) -> None:
        self._output = output

    def __await__(self) -> Generator[Any, None, None]:
        return self._output.wait_for_room().__await__()
