"""What a failure may keep alive until somebody asks for it: estimates, and cuts."""

from __future__ import annotations

import gc
import sys
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
from typing import Any

# An estimate looks at so many objects: more of them are rarely one item's own.
_LOOKS = 256
_ERRORS = 16
# Part of the program, and not of an item.
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
    """Return about how many bytes it keeps alive; no more is looked for than `enough`.

    What is behind its first few hundred objects does not count. Calls no user code but
    `__sizeof__`, so that it may be asked while a lock is held.
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
    """Let the frames of an error's traceback go of what they held: whole batches.

    Where it was raised is still known, and can be printed. Frames that go on are left
    alone: of coroutines and generators, too, which `traceback.clear_frames` would end.
    """
    chain: list[BaseException] = [error]
    for each in chain:
        trace = each.__traceback__
        for _ in range(_LOOKS):
            if trace is None:
                break
            if _has_ended(trace.tb_frame):
                trace.tb_frame.clear()
            trace = trace.tb_next
        inner: tuple[Any, ...] = (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            inner += each.exceptions
        for other in inner:
            is_known = other is None or any(other is known for known in chain)
            if not is_known and len(chain) < _ERRORS:
                chain.append(other)


def _has_ended(frame: FrameType) -> bool:
    # A frame owns its code and its variables only when its function has returned; until
    # then they are on the interpreter's stack, or in the coroutine.
    return any(each is frame.f_code for each in gc.get_referents(frame))
