"""G1: threads wake asyncio's own loop by a file, which all queues on it share."""

import asyncio
import errno
import os
import selectors
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async._threads import wake_up_file
from batchqueue_async._threads.wake_up_file import WakeUpFile
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.background import PATIENCE, until
from tests.bridge.interruptions import Interruption
from tests.bridge.test_recursion import DEEPEST, at_depth, depth
from tests.engine.test_nested_loops import run_inside
from tests.support.oracle import check_settled
from tests.support.striking import Struck, drive
from tests.support.struck_queue import is_in_callback

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

pytestmark = pytest.mark.skipif(
    not hasattr(os, "eventfd"), reason="there is no such file but on Linux"
)

MOST_POINTS = 400


@contextmanager
def running() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield asyncio's own loop; it runs where the test has it run."""
    loop = asyncio.SelectorEventLoop()
    loop.set_exception_handler(lambda *_: None)
    try:
        yield loop
    finally:
        loop.close()


async def opened(consume: Callable[[list[Any]], object]) -> SyncBatchQueue[Any]:
    queue = BatchQueue("q", BatchQueueConfig[Any](consumer=consume))
    await queue.start()
    # So that the drain task sleeps.
    await asyncio.sleep(0.01)
    return SyncBatchQueue(queue)


def on_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_threads_need_no_call_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, two = await opened(handled.extend), await opened(handled.extend)

        def refuse(*_: object) -> None:
            pytest.fail("it called the loop")

        monkeypatch.setattr(loop, "call_soon_threadsafe", refuse)
        on_thread(lambda: one.produce(1) and two.produce(2))
        await until(lambda: handled == [1, 2])
        monkeypatch.undo()
        for queue in (one.queue, two.queue):
            await queue.shutdown()

    with running() as loop:
        loop.run_until_complete(main())


@pytest.fixture(autouse=True)
def no_spare_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a new process."""
    with monkeypatch.context() as patched:
        patched.setattr(wake_up_file, "_spare", [])
        yield
        while wake_up_file._spare:
            os.close(wake_up_file._spare.pop())


def test_loops_that_come_and_go_leave_no_files_behind() -> None:
    async def main() -> None:
        first, second = await opened(handled.extend), await opened(handled.extend)
        on_thread(lambda: first.produce(1) and second.produce(2))
        await first.queue.shutdown()
        await second.queue.shutdown()

    counts = []
    for _ in range(20):
        handled: list[int] = []
        with running() as loop:
            loop.run_until_complete(main())
        assert sorted(handled) == [1, 2]
        counts.append(files())
    assert counts == [counts[0]] * 20


def test_a_late_wake_up_reaches_nobody_elses_file(tmp_path: Path) -> None:
    """A thread may be about to write when the loop is closed."""
    with running() as loop:
        late = WakeUpFile.of(loop)
        assert late is not None
    with ExitStack() as stack:
        # One of them would have the number of a closed file.
        foreign = [
            stack.enter_context((tmp_path / str(number)).open("wb"))
            for number in range(20)
        ]
        called: list[str] = []
        next_loop = stack.enter_context(running())
        own = WakeUpFile.of(next_loop)
        assert own is not None
        late.call(lambda: called.append("late"))
        own.call(lambda: called.append("own"))
        next_loop.run_until_complete(asyncio.sleep(0.01))
        assert called == ["own"]
    assert [Path(each.name).read_bytes() for each in foreign] == [b""] * 20


class OwnWay(asyncio.SelectorEventLoop):
    """As where another library's loop is what really runs."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(callback, *args, context=context)


def of_select() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


@pytest.mark.parametrize("made", [VirtualTimeLoop, OwnWay, of_select])
def test_loops_that_are_woken_in_their_own_way_have_none(
    made: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    loop = made()
    assert WakeUpFile.of(loop) is None
    loop.close()


def test_where_no_more_files_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        queue = await opened(handled.extend)
        on_thread(lambda: queue.produce(1))
        await until(lambda: handled == [1])
        await queue.queue.shutdown()

    monkeypatch.setattr(os, "eventfd", refuse)
    with running() as loop:
        loop.run_until_complete(main())


def test_a_forked_child_has_a_file_of_its_own() -> None:
    """Else it would read what its parent's loop waits for."""
    with running() as loop:
        assert WakeUpFile.of(loop) is not None
    (spare,) = wake_up_file._spare
    with running() as still_open:
        wake_up_file._spare.clear()
        assert WakeUpFile.of(still_open) is not None
        wake_up_file._spare.append(spare)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                _use_in_a_child(spare, still_open)
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _use_in_a_child(spare: int, inherited: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(spare)
    inherited.close()
    assert wake_up_file._spare == []
    handled: list[int] = []
    with LoopThread() as own:
        queue = own.open("q", BatchQueueConfig[int](consumer=handled.extend))
        for item in range(100):
            queue.produce(item)
        queue.flush(PATIENCE)
    assert handled == [*range(100)]


def test_one_call_that_always_raises_does_not_hold_up_the_others() -> None:
    called: list[int] = []

    def fail() -> None:
        raise Struck

    with running() as loop:
        file = WakeUpFile.of(loop)
        assert file is not None
        file.call(fail)
        file.call(lambda: called.append(1))
        loop.run_until_complete(asyncio.sleep(0.01))
    assert called == [1]


def test_a_handler_that_runs_the_loop_inside_of_itself() -> None:
    handled: list[str] = []
    queues: list[SyncBatchQueue[Any]] = []

    def consume(batch: list[str]) -> None:
        handled.extend(batch)
        if "first" in batch:
            on_thread(lambda: queues[1].produce("second"))
            run_inside(until(lambda: "second" in handled))

    async def main() -> None:
        queues[:] = await opened(consume), await opened(handled.extend)
        on_thread(lambda: queues[0].produce("first"))
        await until(lambda: len(handled) == 2)
        on_thread(lambda: queues[1].produce("third"))
        await until(lambda: len(handled) == 3)
        for each in queues:
            await each.queue.shutdown()

    with running() as loop:
        loop.run_until_complete(main())
    assert handled == ["first", "second", "third"]


def test_a_call_that_runs_the_loop_has_the_others_called_once() -> None:
    called: list[str] = []
    errors: list[object] = []

    def run_the_loop() -> None:
        if not called:
            called.append("outer")
            file.call(lambda: called.append("third"))
            inside: Any = loop
            for _ in range(3):
                inside.call_soon(called.copy)  # So that it does not wait.
                inside._run_once()

    with running() as loop:
        loop.set_exception_handler(lambda _, context: errors.append(context))
        found = WakeUpFile.of(loop)
        assert found is not None
        file = found
        file.call(run_the_loop)
        file.call(lambda: called.append("second"))
        loop.run_until_complete(asyncio.sleep(0.01))
    assert called == ["outer", "second", "third"]
    assert errors == []


@pytest.mark.parametrize("strike", [KeyboardInterrupt, Struck])
def test_a_wake_up_survives_a_strike_at_each_point(
    strike: type[BaseException],
) -> None:
    for at in range(MOST_POINTS):
        if not wake_up_is_struck(at, strike):
            assert at > 10
            return
    pytest.fail("the sweep does not end")


def wake_up_is_struck(at: int, strike: type[BaseException]) -> bool:
    """Nothing else wakes the drain task: no flush, no shutdown, no further item."""
    handled: list[int] = []
    with running() as loop:
        queue = drive(loop, opened(handled.extend))
        on_thread(lambda: queue.produce(1))
        point = Interruption(at, raising(strike), is_in_callback, at_entries=True)
        with point:
            drive(loop, asyncio.sleep(0.002))
        drive(loop, until(lambda: handled))
        assert handled == [1], f"at point {at}, {point.where}"
        drive(loop, queue.queue.shutdown())
        check_settled(queue.queue)
    return point.has_acted


def raising(strike: type[BaseException]) -> Callable[[], None]:
    def act() -> None:
        raise strike

    return act


@pytest.mark.parametrize("is_calling", [False, True])
def test_the_stack_that_is_asked_for_is_enough(
    is_calling: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the file calls, the loop is told by a call of its own, which takes more."""
    asked: list[int] = []
    told: list[int] = []

    def ask_and_tell() -> None:
        ingress._need_stack()
        asked.append(1)
        ingress._wake_loop()
        told.append(1)

    def at_each_depth() -> None:
        for short_of in range(DEEPEST):
            with suppress(RecursionError):
                at_depth(sys.getrecursionlimit() - depth() - short_of, ask_and_tell)

    with running() as loop:
        bridge = loop.run_until_complete(opened(print))
        ingress = bridge._ingress
        file = WakeUpFile.of(loop)
        assert file is not None
        monkeypatch.setattr(file, "_is_calling", is_calling)
        on_thread(at_each_depth)
        loop.run_until_complete(bridge.queue.shutdown())
    assert 5 < len(told) == len(asked) < DEEPEST
