"""Cells of a notebook, in a kernel as Jupyter has it: the guide's, and its end."""

import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.background import wait_until

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "notebooks.md"
CELL = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PATIENCE = 30.0

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # What Jupyter's packages do is theirs.
    pytest.mark.skipif(sys.platform == "win32", reason="needs unix sockets"),
]


class Kernel:
    """A kernel, and one front end of it."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("ipykernel")
        client = pytest.importorskip("jupyter_client")
        own = {"IPYTHONDIR": str(folder), "PYTHONPATH": str(ROOT)}
        # Sockets in a folder: no ports that others may have.
        self._manager = client.KernelManager(transport="ipc", ip=str(folder / "k"))
        # SIGTERM comes after half of it, which a busy machine must not see.
        self._manager.shutdown_wait_time = 2 * PATIENCE
        self._manager.start_kernel(env={**os.environ, **own}, cwd=str(folder))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)

    def run(self, cell: str, *, interrupt_at: Path | None = None) -> dict[str, str]:
        """Run a cell; returns what it printed, `Out` and `Error`, if there are such."""
        number = self._client.execute(textwrap.dedent(cell), allow_stdin=False)
        if interrupt_at is not None:
            wait_until(interrupt_at.exists)
            self._manager.interrupt_kernel()
        told: dict[str, str] = {}
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE)
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream":
                name = content["name"]
                told[name] = told.get(name, "") + content["text"]
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "execute_result":
                told["Out"] = content["data"]["text/plain"]
            elif message["msg_type"] == "error":
                told["Error"] = f"{content['ename']}: {content['evalue']}"
            elif content.get("execution_state") == "idle":
                return told

    def end(self) -> None:
        """End it as Jupyter's Shutdown does."""
        self._client.stop_channels()
        self._manager.shutdown_kernel()
        self._manager.cleanup_resources()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A path that is short enough for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="nb") as path:
        yield Path(path)


@pytest.fixture
def kernel(folder: Path) -> Iterator[Kernel]:
    running = Kernel(folder)
    yield running
    running.end()


def test_the_guides_cells_run_again_and_again(kernel: Kernel) -> None:
    cells = CELL.findall(GUIDE.read_text("utf-8"))
    opening, handling, producing, again, stopping = cells

    for _ in range(2):
        for cell in (opening, handling, producing, opening, handling, producing):
            assert "Error" not in kernel.run(cell)
        assert kernel.run("len(stored)") == {"Out": "4"}
        kernel.run("def store(rows):\n    raise ValueError(rows)")
        assert kernel.run(producing)["Error"].startswith("DeliveryError")
        for cell in (handling, again, "queue.flush()"):
            assert "Error" not in kernel.run(cell)
        assert kernel.run("len(stored)") == {"Out": "6"}
        assert "Error" not in kernel.run(stopping)


OPEN = """
    import asyncio, threading
    from pathlib import Path
    from batchqueue_async import *

    handled, gate = [], threading.Event()

    def store(rows):
        Path("entered").touch()
        gate.wait()
        handled.extend(rows)

    config = BatchQueueConfig(consumer=in_thread(store), buffer_size=1, max_batch=1)
"""


@pytest.mark.parametrize("waits", ["produce", "flush"])
def test_an_interrupted_cell_loses_nothing_and_the_next_one_goes_on(
    kernel: Kernel, folder: Path, waits: str
) -> None:
    kernel.run(OPEN)
    kernel.run('queue = LoopThread().start().open("rows", config)')
    call = {"produce": "while queue.produce(1): pass", "flush": "queue.flush()"}[waits]

    told = kernel.run(f"queue.produce(0)\n{call}", interrupt_at=folder / "entered")

    assert told["Error"].startswith("KeyboardInterrupt")
    told = kernel.run("""
        gate.set()
        queue.flush()
        stats = queue.stats()
        stats.accepted == stats.handled == len(handled) > 0
    """)
    assert told == {"Out": "True"}


def test_a_cell_that_awaits_is_cancelled_and_the_queue_goes_on(
    kernel: Kernel, folder: Path
) -> None:
    kernel.run(OPEN)
    kernel.run('queue = BatchQueue("rows", config)\nawait queue.start()')

    # ipykernel takes an interrupt when the loop wakes: something has to wake it.
    told = kernel.run(
        """
        async def wake():
            while True:
                await asyncio.sleep(0.01)

        waking = asyncio.create_task(wake())
        await queue.produce_many(range(100))
        """,
        interrupt_at=folder / "entered",
    )

    assert told["Error"].startswith("CancelledError")
    told = kernel.run("""
        gate.set()
        await queue.flush()
        stats = queue.stats()
        waking.cancel()
        await queue.close()
        stats.accepted == stats.handled == len(handled) > 0
    """)
    assert told == {"Out": "True"}


def test_the_kernels_end_drains_a_loop_thread_and_tells_of_its_own_loop(
    folder: Path,
) -> None:
    kernel = Kernel(folder)
    kernel.run("""
        from pathlib import Path
        from batchqueue_async import *

        def store(rows):
            Path("stored").write_text(str(rows))

        def tell(rows, error):
            Path("told").write_text(f"{rows} {error}")

        drained = LoopThread().start()
        config = BatchQueueConfig(consumer=store, linger=60.0)
        drained.open("drained", config).produce_many([1, 2])
        config = BatchQueueConfig(consumer=store, linger=60.0, on_error=tell)
        queue = BatchQueue("own", config)
        await queue.start()
        await queue.produce_many([3, 4])
    """)

    kernel.end()

    assert (folder / "stored").read_text() == "[1, 2]"
    assert (folder / "told").read_text() == (
        "[3, 4] the loop of queue 'own' ended without its shutdown: 2 items are left"
    )


def test_a_class_that_its_cell_made_again_is_told(kernel: Kernel) -> None:
    define = "class Click:\n    pass"
    kernel.run(define)
    kernel.run("""
        from batchqueue_async import *
        queue = BatchQueue("clicks")
        await queue.start()
        queue.add_handler(Click, lambda clicks: None)
    """)
    kernel.run(define)

    told = kernel.run("await queue.produce(Click())\nawait queue.flush()")

    assert told["Error"].startswith("DeliveryError")
    assert "there is one for another class named Click" in told["stderr"]
