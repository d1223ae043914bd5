"""Finds the tasks and threads that outlive a test."""

import asyncio
import threading
import time
from typing import Any

THREAD_GRACE = 10.0
"""Real seconds that threads get to end after a test."""


def surviving_tasks() -> set[asyncio.Task[Any]]:
    """The running loop's tasks but the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def surviving_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads that are new since `before` and don't end within the grace."""
    deadline = time.monotonic() + THREAD_GRACE
    while alive := _new_threads(before):
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.005)
    return set()


def _new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if thread not in before and not _outlives_tests_by_design(thread)
    }


def _outlives_tests_by_design(thread: threading.Thread) -> bool:
    # anyio keeps idle worker threads for later calls until their loop's root task
    # ends, and doesn't wait for them.
    if thread.name.startswith("AnyIO worker thread"):
        return True
    # py4j keeps the connections to Spark's JVM, each with its thread, until the
    # session stops; the session is shared by many tests.
    target = getattr(thread, "_target", None)
    owner = getattr(target, "__module__", None) or type(thread).__module__
    return owner.partition(".")[0] in {"py4j", "pyspark"}
