"""Stands in for a lock where no other thread uses the queue."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class _Unguarded:
    """As `contextlib.nullcontext`, without a call of a Python function.

    The `format` of an empty string takes any arguments, and returns an empty string: as
    that is false, no exception is swallowed. Every change of a partition enters this.
    """

    __enter__ = __exit__ = "".format


UNGUARDED: AbstractContextManager[Any] = _Unguarded()  # type: ignore[assignment]
