"""Items that ended other than handled, kept for the next `flush` of one object.

There may never be a flush. So the memory that failures keep is estimated, and bounded.
"""

from __future__ import annotations

import gc
import sys
from contextlib import AbstractContextManager
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, Final
from weakref import ref

from batchqueue_async._engine.partitions.unguarded import UNGUARDED
from batchqueue_async._policies.errors import (
    KEPT_BYTES,
    KEPT_FAILURES,
    BatchQueueError,
    Failure,
    OmittedItem,
    Outcome,
)
from batchqueue_async._wording import members_of, reason, traceback_of


class FailureLog:
    """The number of failures since the last flush, and the first hundred of them."""

    __slots__ = (
        "__weakref__",
        "_count",
        "_failures",
        "_room",
    )

    def __init__(self) -> None:
        self._count = 0
        self._room = KEPT_BYTES
        # None while there are none: there are many logs, and few failures.
        self._failures: list[Failure] | None = None

    def add(
        self, outcome: Outcome, items: list[Any], error: BaseException | None
    ) -> None:
        self._count += len(items)
        if self._failures is None:
            self._failures = []
        most = KEPT_FAILURES - len(self._failures)
        if most <= 0:
            return
        if error is not None and not self._has_room_for(error):
            error = BatchQueueError(reason(error))
        for item in items[:most]:
            kept = item if self._has_room_for(item) else OmittedItem.of(item)
            self._failures.append(Failure(kept, error, outcome))

    @property
    def is_empty(self) -> bool:
        return not self._count

    def clear(self) -> tuple[int, tuple[Failure, ...]]:
        count, failures = self._count, tuple(self._failures or ())
        self._count, self._failures, self._room = 0, None, KEPT_BYTES
        return count, failures

    def _has_room_for(self, value: object) -> bool:
        size = estimated_size(value, self._room)
        if size > self._room:
            return False
        self._room -= size
        return True


class FailureLogs:
    """The logs of all objects that flush one queue; forgotten with their objects."""

    __slots__ = (
        "_logs",
        "guard",
    )

    def __init__(self) -> None:
        # Not a WeakSet: for the one log that most queues have it is large.
        self._logs: list[ref[FailureLog]] = []
        # Threads displace items, too, once the queue is shared with them.
        self.guard: AbstractContextManager[Any] = UNGUARDED

    def new_log(self) -> FailureLog:
        log = FailureLog()
        with self.guard:
            self._logs.append(ref(log, self._logs.remove))
        return log

    def add(
        self,
        outcome: Outcome,
        items: list[Any],
        error: BaseException | None = None,
    ) -> None:
        if error is not None:
            forget_locals(error)
        with self.guard:
            # A copy: a log may be forgotten at any moment.
            for known in tuple(self._logs):
                if (log := known()) is not None:
                    log.add(outcome, items, error)

    def add_to(self, log: FailureLog, error: BaseException) -> None:
        """Note that an `on_flush` failed, which concerns no item, in one log only."""
        with self.guard:
            log.add("on_flush", [None], error)

    def clear(self, log: FailureLog) -> tuple[int, tuple[Failure, ...]]:
        with self.guard:
            return log.clear()


# An estimate looks at so many objects: more of them are rarely one item's own.
_LOOKS = 256
_ERRORS = 16
# Whatever the error's class makes of these attributes.
_cause_of: Final = vars(BaseException)["__cause__"].__get__
_context_of: Final = vars(BaseException)["__context__"].__get__
# Types of objects that are part of the program, and not of an item.
_SHARED = (
    type,
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    TracebackType,
)


def estimated_size(value: object, enough: int) -> int:
    """Return about how many bytes a value keeps alive; stops above `enough`.

    Objects beyond the first few hundred do not count. It calls no user code but
    `__sizeof__`, so that it may be called while a lock is held.
    """
    size, todo, seen = 0, [value], {id(value)}
    for each in todo:
        try:
            size += sys.getsizeof(each)
        except Exception:  # noqa: BLE001 - a user's class may do anything
            size += 1
        if size > enough:
            break
        for part in islice(gc.get_referents(each), _LOOKS):
            if len(todo) == _LOOKS:
                break
            if id(part) not in seen and not issubclass(type(part), _SHARED):
                seen.add(id(part))
                todo.append(part)
    return size


def forget_locals(error: BaseException) -> None:
    """Clear the frames of an error's traceback, which keep whole batches alive.

    The traceback can still be printed. Frames that still run are left alone: those of
    coroutines and generators, too, which `traceback.clear_frames` would end.
    """
    chain: list[BaseException] = [error]
    for each in chain:
        trace = traceback_of(each)
        for _ in range(_LOOKS):
            if trace is None:
                break
            if _has_ended(trace.tb_frame):
                trace.tb_frame.clear()
            trace = trace.tb_next
        inner: tuple[Any, ...] = (_cause_of(each), _context_of(each))
        if isinstance(each, BaseExceptionGroup):
            inner += members_of(each)
        for other in inner:
            is_known = other is None or any(other is known for known in chain)
            if not is_known and len(chain) < _ERRORS:
                chain.append(other)


def _has_ended(frame: FrameType) -> bool:
    # A frame owns its code and its variables only when its function has returned; until
    # then they are on the interpreter's stack, or in the coroutine.
    return any(each is frame.f_code for each in gc.get_referents(frame))
