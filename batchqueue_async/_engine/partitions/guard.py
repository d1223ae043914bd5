"""What stands for a lock where no other thread is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class _Unguarded:
    """As `contextlib.nullcontext`, without a call of a Python function.

    A method of a string that does nothing takes any arguments, and what it returns is
    false, so it swallows no exception. Every change of a partition enters this.
    """

    __enter__ = __exit__ = "".format


UNGUARDED: AbstractContextManager[Any] = _Unguarded()  # type: ignore[assignment]
