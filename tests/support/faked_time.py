"""A clock that a test fakes, as freezegun does it."""

import sys
import time

import pytest

_AHEAD = 1000.0


def fake_monotonic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each look of the library's at `time.monotonic` a long time after the last.

    asyncio and the tests see the machine's time, as with `real_asyncio=True`.
    """
    machine, ahead = time.monotonic, 0.0

    def monotonic() -> float:
        nonlocal ahead
        caller = sys._getframe(1).f_globals["__name__"]
        if not caller.startswith("batchqueue_async"):
            return machine()
        ahead += _AHEAD
        return machine() + ahead

    monkeypatch.setattr(time, "monotonic", monotonic)
