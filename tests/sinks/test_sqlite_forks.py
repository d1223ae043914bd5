"""A sink of SQLite's that is used on both sides of a fork."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

# From Python 3.12 on, which warns of each fork beside threads.
QUIET = "ignore:This process:DeprecationWarning"
ROWS = 50_000
"""So many that they don't stay in memory: the temporary table has a file."""

PROGRAM = f"""
import asyncio, os, sys
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.sqlite import SqliteEpochSink

sink = SqliteEpochSink(sys.argv[1], "items", ("name",))
PARENT, CHILD = Epoch("parent", 0), Epoch("child", 0)

async def write(epoch):
    await sink.write(epoch, [(epoch.query * 16,)] * {ROWS})

asyncio.run(sink.begin(PARENT))
asyncio.run(write(PARENT))
is_filled, is_told = os.pipe(), os.pipe()
child = os.fork()
if not child:
    asyncio.run(sink.begin(CHILD))
    asyncio.run(write(CHILD))
    os.write(is_filled[1], b".")
    os.read(is_told[0], 1)
    asyncio.run(sink.commit(CHILD))
    os._exit(0)
os.close(is_filled[1])
os.read(is_filled[0], 1)
asyncio.run(write(PARENT))
os.write(is_told[1], b".")
_, status = os.waitpid(child, 0)
asyncio.run(sink.commit(PARENT))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_parent_and_child_write_what_is_theirs(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute("CREATE TABLE items (name TEXT)")

    command = [sys.executable, "-W", QUIET, "-c", PROGRAM, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(path)) as database:
        found = "SELECT name, count(*) FROM items GROUP BY name ORDER BY name"
        assert database.execute(found).fetchall() == [
            ("child" * 16, ROWS),
            ("parent" * 16, 2 * ROWS),
        ]
