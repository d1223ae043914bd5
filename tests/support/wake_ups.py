"""Counts how often other threads wake a loop, be it by a call or by a file."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest


class WakeUps:
    """Counts from when it is made, on the loop that runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        loop = asyncio.get_running_loop()
        for where, name in ((loop, "call_soon_threadsafe"), (os, "eventfd_write")):
            # There is no such file but on Linux.
            if original := getattr(where, name, None):
                monkeypatch.setattr(where, name, self._counting(original))

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it is
            self.count += 1
            return original(*args, **kwargs)

        return counting
