"""F4: where warnings are errors, one queue's does not keep the others' back."""

import subprocess
import sys

FILL = """
import asyncio
from batchqueue_async import BatchQueue

async def fill(*names):
    for name in names:
        queue = BatchQueue(name)
        await queue.start()
        await queue.produce(1)

def run(*names):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(fill(*names))
    return loop
"""


def errors_of(program: str) -> str:
    """What the program prints to stderr, with all warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", FILL + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stderr


def test_each_queue_of_a_loop_is_warned_of() -> None:
    told = errors_of('asyncio.run(fill("a", "b"))')
    for name in "ab":
        assert f"ResourceWarning: the loop of queue '{name}' ended without" in told


def test_at_exit_each_loop_is_seen_to() -> None:
    told = errors_of('loops = [run("a"), run("b")]')
    for name in "ab":
        assert f"\nthe loop of queue '{name}' ended without" in f"\n{told}"
    # Nobody's queue is left to the interpreter's last collection.
    assert "LoopRegistry.__del__" not in told
    assert "Task was destroyed" not in told
