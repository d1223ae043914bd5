"""`in_process`: a handler beside the loop's core, and what becomes of its processes."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    ProcessDied,
    Retry,
    in_process,
)
from batchqueue_async._bridge.handler_process import HandlerProcess
from tests.engine.computing import (
    ERRORS,
    Frozen,
    Handler,
    HangsInFlush,
    NeedsTwo,
    Switched,
    runs_nothing,
    store_pid,
)
from tests.engine.until import until
from tests.support.oracle import check_settled

pytestmark = pytest.mark.real_time

# A process takes most of a second to start, and knows no loop.
one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def calls(notes: Path) -> list[str]:
    return [each.rpartition(" ")[0] for each in notes.read_text().splitlines()]


def processes(notes: Path) -> set[int]:
    return {int(each.rpartition(" ")[2]) for each in notes.read_text().splitlines()}


@one_loop
async def test_it_runs_in_one_process_of_its_own_with_its_hooks(notes: Path) -> None:
    async with BatchQueue[str]("q") as queue:
        queue.add_handler(str, in_process(Handler(notes)))
        await queue.produce("one")
        await queue.flush()
        await queue.produce("two")
    assert calls(notes) == [
        "on_open",
        "consume",
        "on_flush after 1",
        "consume",
        "on_close after 2",
    ]
    (process,) = processes(notes)
    assert process != os.getpid()
    assert check_settled(queue).handled == 2


@one_loop
async def test_it_waits_for_no_batch_and_starts_nothing_without_one() -> None:
    four = DrainTaskPolicy.fixed(4), PartitionPolicy.fixed(4)
    config = BatchQueueConfig[Path](drain_tasks=four[0], partitions=four[1])
    async with BatchQueue("q", config) as queue:
        queue.add_handler(Path, in_process(store_pid, concurrency=4))
        await queue.flush()
        assert multiprocessing.active_children() == []


@one_loop
async def test_several_processes_work_at_once(tmp_path: Path) -> None:
    config = BatchQueueConfig[Path](
        consumer=in_process(store_pid, concurrency=2),
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=lambda path, _: int(path.name) % 4,
    )
    paths = [tmp_path / str(number) for number in range(8)]
    async with BatchQueue("q", config) as queue:
        for path in paths:
            await queue.produce(path)
            await asyncio.sleep(0.01)
        await queue.flush()
        assert len(multiprocessing.active_children()) == 2
    told = [path.read_text().split() for path in paths]
    assert len({process for process, _, _ in told}) == 2


@one_loop
async def test_a_hook_that_is_none_and_a_consume_that_is_no_method(
    tmp_path: Path,
) -> None:
    config = BatchQueueConfig(consumer=in_process(Switched()))
    async with BatchQueue("q", config) as queue:
        await queue.produce(tmp_path / "handled")
    assert (tmp_path / "handled").exists()
    assert check_settled(queue).handled == 1


@one_loop
async def test_an_asynchronous_generator_never_counts_as_handled(
    tmp_path: Path,
) -> None:
    """Its body never runs."""
    errors: list[BaseException] = []
    config = BatchQueueConfig[Path](
        consumer=in_process(runs_nothing),
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(tmp_path)
    assert "it returned an async_generator" in str(errors[0])
    assert check_settled(queue).failed == 1


@one_loop
async def test_what_it_raises_is_raised_here(notes: Path) -> None:
    errors: list[BaseException] = []
    config = BatchQueueConfig[str](
        consumer=in_process(Handler(notes)),
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        for item in ERRORS:
            await queue.produce(item)
            with pytest.raises(DeliveryError):
                await queue.flush()
        await queue.produce("fine")
    frozen, key_error, odd, none, without_stdout = errors
    assert frozen == Frozen()
    assert isinstance(key_error, KeyError)
    assert key_error.args == ("raise",)
    assert "in consume" in key_error.__notes__[0]
    assert "raise ERRORS[item]" in key_error.__notes__[0]
    assert not isinstance(odd, NeedsTwo)
    assert str(odd) == "the handler raised NeedsTwo('1 2')"
    assert str(none) == "the handler raised BecomesNone()"
    assert isinstance(without_stdout, KeyError)
    assert check_settled(queue).failed == len(ERRORS)
    assert len(processes(notes)) == 1


@pytest.mark.parametrize(
    "deadly, how",
    [
        ("die", "SIGKILL"),
        ("die namelessly", f"signal {signal.SIGRTMIN + 1}"),
        ("exit", "exit code 3"),
    ],
)
@one_loop
async def test_one_that_dies_fails_its_batch_and_is_replaced(
    deadly: str, how: str, notes: Path
) -> None:
    errors: list[BaseException] = []
    config = BatchQueueConfig[str](
        consumer=in_process(Handler(notes)),
        max_batch=1,
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([deadly, "fine"])
    (error,) = errors
    assert isinstance(error, ProcessDied)
    assert str(error) == f"in_process(Handler): its process died ({how})"
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (1, 1)
    assert calls(notes) == ["on_open", "consume"] * 2 + ["on_close after 1"]
    assert len(processes(notes)) == 2


@one_loop
async def test_one_that_died_at_rest_costs_nothing(notes: Path) -> None:
    async with BatchQueue[str]("q") as queue:
        queue.add_handler(str, in_process(Handler(notes)))
        await queue.produce("one")
        await queue.flush()
        (child,) = multiprocessing.active_children()
        child.kill()
        await asyncio.to_thread(child.join)
        await queue.produce("two")
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (0, 2)


@one_loop
async def test_a_death_is_retried_like_any_error(tmp_path: Path) -> None:
    config = BatchQueueConfig[str](
        consumer=in_process(Handler(tmp_path / "notes")),
        retry=Retry(attempts=2, wait_initial=0.0, retry_on=(ProcessDied,)),
        on_error=lambda *_: None,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce("die")
    assert check_settled(queue).failed == 1
    assert calls(tmp_path / "notes") == ["on_open", "consume"] * 2


@pytest.mark.parametrize("timeout", [0.01, 2.0])
@one_loop
async def test_at_its_timeout_it_is_killed(
    timeout: float, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while it is being started, and nothing of the handler is there yet."""
    errors: list[BaseException] = []
    config = BatchQueueConfig[str](
        consumer=in_process(Handler(notes)),
        handler_timeout=timeout,
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce("hang")
        await until(lambda: errors)
    assert [type(each) for each in errors] == [TimeoutError]
    assert check_settled(queue).failed == 1


@one_loop
async def test_at_the_shutdown_deadline_it_is_killed(notes: Path) -> None:
    queue = BatchQueue[str]("q")
    await queue.start()
    queue.add_handler(str, in_process(Handler(notes)))
    await queue.produce("hang")
    await until(lambda: "consume" in calls(notes))
    assert await queue.shutdown(timeout=0.01) == ["hang"]
    await until(lambda: not multiprocessing.active_children())
    assert check_settled(queue).returned == 1


@one_loop
async def test_a_child_that_it_forks_does_not_answer_for_it(notes: Path) -> None:
    """The child leaves the handler, too: it must end, and take no batch."""
    async with BatchQueue[str]("q", BatchQueueConfig(max_batch=1)) as queue:
        queue.add_handler(str, in_process(Handler(notes)))
        await queue.produce_many(["fork", "two", "three"])
    assert check_settled(queue).handled == 3
    assert calls(notes) == ["on_open", *["consume"] * 3, "on_close after 3"]
    assert len(processes(notes)) == 1


@pytest.mark.parametrize("item", ["fork and die", "start and die"])
@one_loop
async def test_its_death_is_noticed_though_what_it_started_lives(
    item: str, notes: Path
) -> None:
    errors: list[BaseException] = []
    config = BatchQueueConfig[str](
        consumer=in_process(Handler(notes)),
        max_batch=1,
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([item, "fine"])
    os.kill(int((notes.parent / "another").read_text()), signal.SIGKILL)
    assert [type(each) for each in errors] == [ProcessDied]
    assert check_settled(queue).handled == 1


@one_loop
async def test_one_that_was_killed_gets_no_other_batch(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may have been on its way; and it takes a moment to die."""
    answered, killed = threading.Event(), threading.Event()
    real_call, real_kill = HandlerProcess.call, HandlerProcess.kill

    def call(process: HandlerProcess, name: str, *arguments: object) -> None:
        real_call(process, name, *arguments)
        if arguments == (["late"],):
            answered.set()
            killed.wait(60.0)

    def kill(process: HandlerProcess) -> None:
        real_kill(process)
        killed.set()

    monkeypatch.setattr(HandlerProcess, "call", call)
    monkeypatch.setattr(HandlerProcess, "kill", kill)
    monkeypatch.setattr(SpawnProcess, "kill", lambda _: None)
    handler: Any = in_process(Handler(notes))
    late = asyncio.create_task(handler.consume(["late"]))
    await until(answered.is_set)
    late.cancel()
    await asyncio.wait({late})
    await handler.consume(["next"])
    assert len(processes(notes)) == 2
    await handler.on_close()


@one_loop
async def test_a_hook_that_hangs_in_each_process_is_stopped_as_a_whole(
    notes: Path,
) -> None:
    handler: Any = in_process(HangsInFlush(notes), concurrency=2)
    await asyncio.gather(handler.consume(["one"]), handler.consume(["two"]))
    assert len(processes(notes)) == 2
    flush = asyncio.create_task(handler.on_flush())
    await until(lambda: "on_flush" in calls(notes))
    flush.cancel()
    assert await asyncio.wait({flush}, timeout=60.0) == ({flush}, set())
    await handler.consume(["three"])
    assert len(processes(notes)) == 2, "the other one is there"
    await handler.on_close()
    assert len(multiprocessing.active_children()) == 0


def test_what_cannot_be_pickled_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"^handler must be picklable"):
        in_process(lambda batch: None)
    handler = Handler(Path())
    handler.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"got a Handler: TypeError\(.cannot pickle"):
        in_process(handler)


def test_what_is_async_or_no_handler_is_refused() -> None:
    async def consume(batch: list[int]) -> None: ...

    with pytest.raises(TypeError, match="blocking to run in a process"):
        in_process(consume)
    with pytest.raises(TypeError, match="callable"):
        in_process(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^concurrency must be >= 1, got 0$"):
        in_process(store_pid, concurrency=0)


@one_loop
async def test_items_that_cannot_be_pickled_fail(notes: Path) -> None:
    errors: list[BaseException] = []
    config = BatchQueueConfig[Any](
        consumer=in_process(Handler(notes)),
        on_error=lambda _, error: errors.append(error),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(threading.Lock())
    assert "items must be picklable to be handled in a process" in str(errors[0])


PROGRAM = """
import sys
from pathlib import Path
from batchqueue_async import BatchQueueConfig, LoopThread, in_process
from tests.engine.computing import Handler

if __name__ == "__main__":
    notes = Path(sys.argv[1])
    thread = LoopThread()
    thread.start()
    queue = thread.open("q", BatchQueueConfig(consumer=in_process(Handler(notes))))
    queue.produce("one")
    # It ends without a stop: what was accepted is handled at the interpreter's exit.
"""


def test_at_the_interpreters_exit_it_drains_and_ends(
    tmp_path: Path, notes: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(program), str(notes)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(notes) == ["on_open", "consume", "on_close after 1"]
    for process in processes(notes):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


FROM_STDIN = """
import asyncio
from batchqueue_async import BatchQueue, BatchQueueConfig, in_process

async def main():
    async with BatchQueue("q", BatchQueueConfig(consumer=in_process(print))) as queue:
        await queue.produce("one")

asyncio.run(main())
"""


def test_in_a_program_that_comes_from_stdin() -> None:
    """Its processes looked for a file of the name "<stdin>", and died."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=FROM_STDIN,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['one']\n"


def test_through_a_loop_thread(notes: Path) -> None:
    config = BatchQueueConfig[str](consumer=in_process(Handler(notes)))
    with LoopThread() as thread:
        queue = thread.open("q", config)
        assert queue.produce("one")
        queue.flush(60.0)
    assert calls(notes)[-1] == "on_close after 1"
