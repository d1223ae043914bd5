"""F4: a test that forgets to close a queue fails where warnings are errors."""

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import asyncio
from batchqueue_async import BatchQueue

async def forget():
    for name in ("first", "second"):
        queue = BatchQueue(name)
        await queue.start()
        await queue.produce("item")

def test_forgets():
    asyncio.run(forget())
"""


def test_it_fails_by_a_warning_for_each_queue(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed" in done.stdout
    for name in ("first", "second"):
        says = f"ResourceWarning: the loop of queue '{name}' ended without its shutdown"
        assert says in done.stdout
    # What asyncio logs where an asynchronous generator raises.
    assert "an error occurred during closing" not in done.stdout
    assert "GeneratorExit" not in done.stdout
