"""F4: where a loop ends a queue with items left, that is said at ERROR, and `on_error`
is told where it can still run: each item once, and the account stays exact."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.real_loops import LoopFactory, real_loops
from tests.support.running import running

loops = pytest.mark.parametrize(
    "new_loop", real_loops().values(), ids=real_loops().keys()
)


@pytest.fixture(autouse=True)
def _warned() -> Iterator[None]:
    """The warning that comes, too, has its own tests (`test_f4_kept_alive.py`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class Scene:
    """A queue with two items in its handler's hands, and three that wait."""

    def __init__(self, *, is_async: bool = True) -> None:
        self.told: list[int] = []
        self.handled: list[int] = []
        self.errors: list[BaseException] = []
        self.written = 0
        self.queues: list[BatchQueue[int]] = []
        self.on_error = self.tell_async if is_async else self.tell

    def tell(self, batch: list[int], error: BaseException) -> None:
        self.told += batch
        self.errors.append(error)

    async def tell_async(self, batch: list[int], error: BaseException) -> None:
        await asyncio.sleep(0.001)
        self.tell(batch, error)

    async def consume(self, batch: list[int]) -> None:
        if 0 not in batch:
            await asyncio.Event().wait()
        self.handled += batch

    async def on_close(self) -> None:
        self.written += 1

    async def fill(self, name: str = "q") -> BatchQueue[int]:
        config = BatchQueueConfig[int](
            consumer=self, max_batch=2, on_error=self.on_error
        )
        queue = BatchQueue(name, config)
        self.queues.append(queue)
        await queue.start()
        await self.produce(queue)
        return queue

    async def produce(self, queue: BatchQueue[int]) -> None:
        await queue.produce_many([0, 0])
        await until(lambda: queue.stats().handled == 2)
        await queue.produce_many([1, 2])
        await until(lambda: queue.stats().in_flight == 2)
        await queue.produce_many([3, 4, 5])

    async def run(self) -> None:
        await self.fill()

    def check(self, *, told: bool = True) -> None:
        expected = sorted([1, 2, 3, 4, 5] * len(self.queues)) if told else []
        assert sorted(self.told) == expected
        for queue in self.queues:
            stats = check_settled(queue)
            assert (stats.handled, stats.returned) == (2, 5)
            assert queue.stats().not_closed == ("Scene",)
        assert self.written == 0


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.ERROR and "items" in record.getMessage()
    ]


def run_on(new_loop: LoopFactory, main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


@loops
def test_an_on_error_that_the_loops_end_cuts_off_blames_no_deadline(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """There was none: the runner has ended, and nobody has shut the queue down."""
    begun = asyncio.Event()

    async def on_error(batch: list[int], error: BaseException) -> None:
        begun.set()
        await asyncio.Event().wait()

    def fail(batch: list[int]) -> None:
        raise OSError

    async def main() -> None:
        queue = BatchQueue("q", BatchQueueConfig(consumer=fail, on_error=on_error))
        await queue.start()
        await queue.produce(1)
        await begun.wait()

    run_on(new_loop, main())
    told = "q: on_error was cut off by a deadline or loop's end: 1 items"
    assert told in caplog.messages


@loops
@pytest.mark.parametrize("is_async", [True, False])
def test_a_runner_that_ends(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    scene = Scene(is_async=is_async)
    run_on(new_loop, scene.run())
    scene.check()
    (line,) = said(caplog)
    assert "'q'" in line
    assert "5 items" in line


@loops
def test_each_of_two_queues(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    async def main() -> None:
        await scene.fill("one")
        await scene.fill("two")

    run_on(new_loop, main())
    scene.check()
    one, two = sorted(said(caplog))
    assert "'one'" in one
    assert "'two'" in two


@loops
def test_the_queues_of_a_manager(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    async def main() -> None:
        manager = BatchQueueManager()
        for name in ("one", "two"):
            config = BatchQueueConfig[int](
                consumer=scene, max_batch=2, on_error=scene.on_error
            )
            queue = await manager.create(name, config)
            scene.queues.append(queue)
            await scene.produce(queue)
        closing = asyncio.create_task(manager.shutdown_all())
        await turns()
        closing.cancel()

    run_on(new_loop, main())
    scene.check()
    assert len(said(caplog)) == 2


@loops
def test_a_shutdown_that_the_loop_cuts_off(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    closing: list[asyncio.Task[list[int]]] = []

    async def main() -> None:
        queue = await scene.fill()
        closing.append(asyncio.create_task(queue.shutdown()))
        await turns()

    run_on(new_loop, main())
    scene.check()
    assert len(said(caplog)) == 1


@loops
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_loop_that_is_closed_tells_a_sync_on_error_at_once(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture, *, is_stopped: bool
) -> None:
    scene = Scene(is_async=False)
    loop = new_loop()
    loop.run_until_complete(scene.run())
    if is_stopped:
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    scene.check()
    (line,) = said(caplog)
    assert "5 items" in line


@loops
def test_a_closed_loop_cannot_tell_an_async_one_and_says_so(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    loop = new_loop()
    loop.run_until_complete(scene.run())
    loop.close()
    scene.check(told=False)
    (line,) = said(caplog)
    assert "5 items" in line
    assert "on_error is async and is not told" in line


@loops
def test_asyncgens_shut_down_on_a_loop_whose_tasks_still_run(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    loop = new_loop()
    loop.run_until_complete(scene.run())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert not asyncio.all_tasks(loop)
    loop.close()
    scene.check()
    assert len(said(caplog)) == 1


def test_a_loop_that_is_never_closed_and_collected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []

    def forget() -> None:
        scene = Scene(is_async=False)
        scene.told = told
        loop = asyncio.new_event_loop()
        loop.run_until_complete(scene.run())

    forget()
    gc.collect()
    assert sorted(told) == [1, 2, 3, 4, 5]
    assert len(said(caplog)) == 1


@loops
def test_a_hung_on_error_has_a_second(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    cut_off: list[bool] = []

    async def hang(batch: list[int], error: BaseException) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut_off.append(True)

    scene.on_error = hang
    run_on(new_loop, scene.run())
    assert cut_off == [True]
    assert any("in time" in record.getMessage() for record in caplog.records)
    scene.check(told=False)


@loops
def test_a_hung_on_error_of_two_queues_does_not_take_two(new_loop: LoopFactory) -> None:
    scene = Scene()

    async def hang(batch: list[int], error: BaseException) -> None:
        scene.told += batch
        await asyncio.Event().wait()

    scene.on_error = hang

    async def main() -> None:
        for name in ("one", "two", "three"):
            await scene.fill(name)

    run_on(new_loop, main())
    scene.check()


@loops
def test_a_list_that_nobody_came_for(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Its shutdown was cancelled and went on; at the loop's end `on_error` gets it."""
    scene = Scene()

    async def main() -> None:
        queue = await scene.fill()
        closing = asyncio.create_task(queue.shutdown(timeout=0.05))
        await turns()
        closing.cancel()
        await until(lambda: queue.stats().returned == 5)
        await turns()
        assert len(said(caplog)) == 1
        assert scene.told == []

    run_on(new_loop, main())
    scene.check()
    assert len(said(caplog)) == 2


@loops
def test_leftovers_of_a_shutdown_from_a_handler_are_told_on_leaving(
    new_loop: LoopFactory,
) -> None:
    told: list[int] = []
    queues: list[BatchQueue[int]] = []

    async def consume(batch: list[int]) -> None:
        assert await queues[0].shutdown(timeout=0.01) == []
        await asyncio.Event().wait()

    async def main() -> None:
        config = BatchQueueConfig[int](
            consumer=consume, on_error=lambda batch, _: told.extend(batch)
        )
        async with BatchQueue("q", config) as queue:
            queues.append(queue)
            await queue.produce(1)
            await until(lambda: queue.stats().returned == 1)

    run_on(new_loop, main())
    assert told == [1]


@loops
def test_an_async_generator_that_leaves_a_queue_at_the_end_drains_it(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """It is closed beside the keeper's own: they must not take each other's items."""
    handled: list[int] = []
    kept: list[object] = []

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.001)
        handled.extend(batch)

    async def serve() -> AsyncIterator[None]:
        config = BatchQueueConfig[int](consumer=consume, linger=1000.0)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2, 3])
            yield

    async def main() -> None:
        serving = serve()
        kept.append(serving)
        await anext(serving)

    run_on(new_loop, main())
    assert handled == [1, 2, 3]
    assert said(caplog) == []


@loops
@pytest.mark.parametrize("handler_timeout", [None, 10.0])
def test_a_handler_that_swallows_its_cancellation_keeps_no_loop_from_ending(
    new_loop: LoopFactory, handler_timeout: float | None
) -> None:
    handled: list[int] = []
    told: list[int] = []

    async def consume(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            handled.extend(batch)

    async def main() -> None:
        config = BatchQueueConfig[int](
            consumer=consume,
            max_batch=2,
            handler_timeout=handler_timeout,
            on_error=lambda batch, _: told.extend(batch),
        )
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce_many(range(6))
        await until(lambda: queue.stats().in_flight)

    run_on(new_loop, main())
    assert sorted(handled + told) == list(range(6))
    assert handled == [0, 1]


@loops
def test_cancelled_twice_at_any_tick_of_leaving_each_item_ends_once(
    new_loop: LoopFactory,
) -> None:
    """As by a second Ctrl-C; then the loop ends."""
    for tick in range(30):
        handled: list[int] = []
        told: list[int] = []
        run_on(new_loop, cancelled_twice(tick, handled, told))
        assert sorted(handled + told) in ([], list(range(12)))


async def cancelled_twice(tick: int, handled: list[int], told: list[int]) -> None:
    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0)
        handled.extend(batch)

    async def tell(batch: list[int], error: BaseException) -> None:
        told.extend(batch)
        await asyncio.sleep(0)

    async def leave() -> None:
        config = BatchQueueConfig[int](consumer=consume, max_batch=1, on_error=tell)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(12))

    leaving = asyncio.create_task(leave())
    await turns(tick)
    leaving.cancel()
    await turns(1)
    leaving.cancel()


def program(body: str) -> str:
    return textwrap.dedent(
        """
        import asyncio, os, sys, threading, time
        from batchqueue_async import BatchQueue, BatchQueueConfig

        async def consume(batch):
            await asyncio.sleep(0.01)

        def on_error(batch, error):
            print("told", len(batch), flush=True)

        async def fill():
            config = BatchQueueConfig(
                consumer=consume, max_batch=10, on_error=on_error
            )
            queue = BatchQueue("q", config)
            await queue.start()
            await queue.produce_many(range(5000))
            return queue
        """
    ) + textwrap.dedent(body)


def ended(body: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", program(body)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


ENDS = {
    "run": "asyncio.run(fill())",
    "run until complete": "asyncio.new_event_loop().run_until_complete(fill())",
    "kept at module level": """
        loop = asyncio.new_event_loop()
        queue = loop.run_until_complete(fill())
        """,
    "closed and kept": """
        loop = asyncio.new_event_loop()
        queue = loop.run_until_complete(fill())
        loop.close()
        """,
    "an uncaught exception": """
        async def main():
            await fill()
            raise SystemExit(0)
        asyncio.run(main())
        """,
    "cancelled, gathered and stopped from inside": """
        async def main():
            await fill()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            asyncio.get_running_loop().stop()
        loop = asyncio.new_event_loop()
        loop.create_task(main())
        loop.run_forever()
        loop.close()
        """,
}


@pytest.mark.real_time
@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS.keys())
def test_a_program_that_ends_says_what_is_left(body: str) -> None:
    status, out, err = ended(body)
    assert status == 0
    assert out == "told 5000\n"
    assert "queue 'q'" in err
    assert "5000 items are left" in err
    assert "destroyed" not in err
    assert "Traceback" not in err


@pytest.mark.real_time
def test_a_daemon_thread_whose_loop_still_runs_is_said_to_lose_them() -> None:
    status, _, err = ended(
        """
        filled = threading.Event()

        async def main():
            await fill()
            filled.set()
            await asyncio.sleep(1000)

        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        filled.wait()
        """
    )
    assert status == 0
    assert "items are lost, and on_error is not told" in err


@pytest.mark.real_time
@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to send")
def test_a_second_ctrl_c_while_leaving() -> None:
    body = """
        async def main():
            async with BatchQueue("q", BatchQueueConfig(
                consumer=consume, max_batch=10, on_error=on_error
            )) as queue:
                await queue.produce_many(range(5000))
                print("ready", flush=True)
                await asyncio.sleep(1000)

        asyncio.run(main())
        """
    with running([sys.executable, "-c", program(body)]) as leaving:
        assert leaving.stdout is not None
        assert leaving.stdout.readline() == "ready\n"
        leaving.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            # The closing has begun, and takes five seconds.
            leaving.wait(0.5)
        leaving.send_signal(signal.SIGINT)
        out, err = leaving.communicate(timeout=50)
    assert "queue 'q'" in err
    assert "items are left" in err
    assert out.startswith("told ")
