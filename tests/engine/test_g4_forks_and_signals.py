"""G4: what a forked child inherits, and what SIGTERM does."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    drain_on_signals,
)
from tests.support.recording_handler import RecordingHandler
from tests.support.running import running

pytestmark = pytest.mark.real_time


def _child(queue: BatchQueue[int]) -> str:
    """Return what a forked child sees of the queue; runs in the child."""
    stats = queue.stats()
    try:
        queue.produce_nowait(4)
    except BatchQueueError as error:
        refusal = str(error)
    else:
        refusal = "accepted"
    return f"{queue.is_running} {stats.waiting} {stats.in_flight} {refusal}"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_child_gets_an_empty_queue_and_the_parent_keeps_its_items() -> None:
    gate = asyncio.Event()
    handler = RecordingHandler[int](gate=gate)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        assert await queue.produce(1)
        await handler.entered()
        assert await queue.produce_many([2, 3]) == 2
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.write(writer, _child(queue).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
        answer = os.read(reader, 1000).decode()
        os.close(reader)
        assert answer.startswith("False 0 0 queue 'q' is its parent process's")
        assert (queue.stats().waiting, queue.stats().in_flight) == (2, 1)
        gate.set()
    assert handler.handled == [1, 2, 3]


PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from batchqueue_async import (
        BatchQueue, BatchQueueConfig, BatchQueueManager, drain_on_signals
    )

    async def slow(batch):
        await asyncio.sleep(float(sys.argv[1]))
        print("handled", len(batch), flush=True)

    async def work(queue):
        await queue.produce_many(range(5))
        await asyncio.sleep(0.1)
        await queue.produce_many(range(3))
        print("ready", flush=True)
        try:
            await asyncio.sleep(30)
        finally:
            print("finally", flush=True)

    declared = {"shutdown_timeout": float(each) for each in sys.argv[3:]}

    async def with_manager():
        async with BatchQueueManager(**declared) as manager:
            drain_on_signals(manager)
            await work(await manager.create("q", BatchQueueConfig(consumer=slow)))

    async def with_queue():
        config = BatchQueueConfig(consumer=slow, **declared)
        async with BatchQueue("q", config) as queue:
            drain_on_signals(queue)
            await work(queue)

    asyncio.run(globals()[sys.argv[2]]())
    """
)

of_either = pytest.mark.parametrize("what", ["with_manager", "with_queue"])


def _run(
    what: str, seconds: float, signals: int, *shutdown_timeout: str, apart: float = 0.3
) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", PROGRAM, str(seconds), what, *shutdown_timeout]
    with running(command, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        for _ in range(signals):
            program.send_signal(signal.SIGTERM)
            # Two signals at once may count as one.
            try:
                program.wait(apart)
            except subprocess.TimeoutExpired:
                continue
        output, _ = program.communicate(timeout=50)
    return program.returncode, output.split("\n")


@of_either
def test_sigterm_drains_and_then_ends_the_program(what: str) -> None:
    code, output = _run(what, 0.2, signals=1)
    assert (code, output) == (143, ["handled 5", "handled 3", "finally", ""])


@of_either
def test_a_second_sigterm_ends_the_wait(what: str) -> None:
    code, output = _run(what, 20.0, signals=2)
    assert (code, output) == (143, ["finally", ""])


@of_either
def test_one_sigterm_that_comes_twice_is_one(what: str) -> None:
    """As `timeout` sends it: to the program, and to its whole group."""
    code, output = _run(what, 0.5, 2, apart=0.005)
    assert (code, output) == (143, ["handled 5", "handled 3", "finally", ""])


@of_either
def test_the_deadline_is_the_declared_one(what: str) -> None:
    code, output = _run(what, 20.0, 1, "0.1")
    assert (code, output) == (143, ["finally", ""])


ENDS_FIRST = textwrap.dedent(
    """
    import asyncio, os, signal
    from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

    async def main():
        config = BatchQueueConfig(consumer=lambda batch: asyncio.sleep(0.1))
        async with BatchQueue("q", config) as queue:
            drain_on_signals(queue)
            await queue.produce(1)
            os.kill(os.getpid(), signal.SIGTERM)
            while await queue.produce(2):
                await asyncio.sleep(0.001)
            # Refused: there is nothing left to do here.
        stats = queue.stats()
        print(stats.handled == stats.accepted, flush=True)

    asyncio.run(main())
    print("never here")
    """
)


def test_a_program_whose_main_ends_first_ends_in_order() -> None:
    """All that `asyncio.run` does after it is done, and nobody complains."""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", ENDS_FIRST],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "True\n", "")


LEAVES = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

    handled, left = [], []

    async def slow(batch):
        if not handled:
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        handled.extend(batch)

    async def main():
        config = BatchQueueConfig(
            consumer=slow, max_batch=1, on_error=lambda batch, _: left.extend(batch)
        )
        async with BatchQueue("q", config) as queue:
            if sys.argv[1] == "drained":
                drain_on_signals(queue, (signal.SIGTERM, signal.SIGINT))
            await queue.produce_many(range(3))

    try:
        asyncio.run(main())
    except (KeyboardInterrupt, SystemExit) as error:
        print(type(error).__name__, len(handled), len(left))
    """
)


@pytest.mark.parametrize(
    "way, says", [("drained", "SystemExit 3 0"), ("plain", "KeyboardInterrupt 0 3")]
)
def test_ctrl_c_while_a_queue_is_being_left(way: str, says: str) -> None:
    """What docs/guides/shutdown.md says of it."""
    ended = subprocess.run(
        [sys.executable, "-c", LEAVES, way],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stdout == f"{says}\n"


FORKS = textwrap.dedent(
    """
    import asyncio, os, signal, sys, time
    from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

    if sys.argv[2] == "handled before":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))

    async def main():
        config = BatchQueueConfig(consumer=lambda batch: asyncio.sleep(0))
        async with BatchQueue("q", config) as queue:
            drain_on_signals(queue)
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.write(writer, b"!")
                time.sleep(20)
                os._exit(0)
            os.read(reader, 1)
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            await asyncio.sleep(0.1)
            print(await queue.produce(1), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(20)

    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.run(main())
    asyncio.run(main())
    """
)


@pytest.mark.parametrize(
    "before, status", [("nothing before", -signal.SIGTERM), ("handled before", 7)]
)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_forked_child_ends_by_the_signal_and_its_parent_goes_on(
    loop: str, before: str, status: int
) -> None:
    """As with `Process.terminate()` of multiprocessing."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, loop, before],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    expected = (143, f"{status}\nTrue\n", "")
    assert (ended.returncode, ended.stdout, ended.stderr) == expected


CALLED_TWICE = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

    handled, stuck = [], sys.argv[1] == "stuck"

    async def main():
        async def store(batch):
            await asyncio.sleep(20 if stuck else 0.05)
            handled.extend(batch)

        async def pass_on(batch):
            for item in batch:
                assert await sink.produce(item)

        over = BatchQueue("over")
        sink = BatchQueue("sink", BatchQueueConfig(consumer=store))
        source = BatchQueue("source", BatchQueueConfig(consumer=pass_on, linger=60))
        for queue in (over, sink, source):
            await queue.start()
            drain_on_signals(queue)
            drain_on_signals(queue)
        await over.shutdown()
        await source.produce_many(range(3))
        await asyncio.sleep(0)
        for seconds in (0.0, 0.3) if stuck else (0.0,):
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.sleep(20)

    try:
        asyncio.run(main())
    finally:
        print(handled)
    """
)


@pytest.mark.parametrize("how, handled", [("", "[0, 1, 2]"), ("stuck", "[]")])
def test_all_queues_for_which_it_is_called_are_drained(how: str, handled: str) -> None:
    """The second call replaced the first one's handler, and so its queue's draining."""
    ended = subprocess.run(
        [sys.executable, "-c", CALLED_TWICE, how],
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )
    assert (ended.returncode, ended.stdout) == (143, f"{handled}\n")
    left = "3 items of 'sink' were left at shutdown\n" if how else ""
    assert ended.stderr.endswith(left)
    assert "without its shutdown" not in ended.stderr


async def test_what_has_no_queues_is_refused() -> None:
    rule = "manager must be a BatchQueueManager, a BatchQueue or a LoopThread, got 5"
    with pytest.raises(TypeError, match=rule):
        drain_on_signals(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "signals, got",
    [(signal.SIGTERM, "Signals.SIGTERM"), ("TERM", "'T'"), ([1000], "1000")],
)
async def test_what_are_no_signals_is_refused(
    signals: Any,  # noqa: ANN401 - of any kind
    got: str,
) -> None:
    """Before any handler is replaced."""
    before = signal.getsignal(signal.SIGTERM)
    rule = r"signals must be an iterable of signals, as in \(signal.SIGTERM,\), got"
    async with BatchQueue[int]("q", BatchQueueConfig(consumer=print)) as queue:
        for drained in (queue, LoopThread()):
            with pytest.raises(TypeError, match=f"^{rule} {got}$"):
                drain_on_signals(drained, signals)
    assert signal.getsignal(signal.SIGTERM) == before


BY_NUMBER = """
import asyncio, signal
from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

async def main():
    async with BatchQueue("q", BatchQueueConfig(consumer=print)) as queue:
        drain_on_signals(queue, (15,))
        await queue.produce(1)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(5)

asyncio.run(main())
"""


def test_a_signal_may_be_given_by_its_number() -> None:
    command = [sys.executable, "-c", BY_NUMBER]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (143, "[1]\n"), ended.stderr


BY_CALL = """
import asyncio, signal, sys, threading
from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals

class NoSignals(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *_):
        raise NotImplementedError

async def main(way):
    sink = BatchQueue("sink", BatchQueueConfig(consumer=print))
    async with sink, BatchQueue("source", BatchQueueConfig(consumer=pass_on)) as queue:
        pass_on_to.append(sink)
        drain_on_signals(sink, (signal.SIGINT, signal.SIGTERM))
        drain_on_signals(queue, (signal.SIGINT, signal.SIGTERM))
        await queue.produce(1)
        if way == "signal":
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(5)

pass_on_to = []

async def pass_on(batch):
    await pass_on_to[0].produce_many(batch)

before = [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]

def run(way):
    try:
        with asyncio.Runner(loop_factory=NoSignals) as runner:
            runner.run(main(way))
    except RuntimeError as error:
        print(error)

try:
    if sys.argv[1] == "thread":
        thread = threading.Thread(target=run, args=("thread",))
        thread.start()
        thread.join()
    else:
        run(sys.argv[1])
finally:
    assert [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))] == before
"""


@pytest.mark.parametrize(
    "way, expected",
    [
        ("signal", (143, "[1]\n")),
        ("end", (0, "[1]\n")),
        ("thread", (0, "signal only works in main thread of the main interpreter\n")),
    ],
)
def test_on_a_loop_that_handles_no_signals(way: str, expected: tuple[int, str]) -> None:
    """As on Windows: the program's handlers do it, until the loop is closed."""
    command = [sys.executable, "-c", BY_CALL, way]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == expected, ended.stderr
