"""Records go into a queue, and whoever logs is never held up by it."""

import asyncio
import contextlib
import io
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import HandlerLike, PartialFailure, Retry, close_process_queues
from batchqueue_async.logging import BatchingHandler
from tests.bridge.background import PATIENCE, answers, in_background, wait_until
from tests.bridge.programs import Program, each_python
from tests.support.oracle import check_accounts

Record = logging.LogRecord


class Sink:
    """Keeps what it gets; while its gate is closed it takes nothing more."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.batches = 0
        self.gate = threading.Event()
        self.gate.set()

    async def consume(self, batch: list[Record]) -> None:
        self.batches += 1
        while not self.gate.is_set():  # noqa: ASYNC110 - opened by a thread
            await asyncio.sleep(0.001)
        self.messages += [each.getMessage() for each in batch]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A tree of its own: its handlers are closed, and it is heard by nobody else."""
    logger = logging.getLogger("tests.logs")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for each in list(logger.handlers):
        logger.removeHandler(each)
        each.close()
    close_process_queues()


class Reports(logging.Handler):
    """What the library says, as another handler gets it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.counts: list[int] = []

    def emit(self, record: Record) -> None:
        self.lines.append(record.getMessage())
        if record.name == "batchqueue_async.logging":
            self.counts.append(int(self.lines[-1].split()[0]))


@pytest.fixture
def reports() -> Iterator[Reports]:
    handler = Reports()
    library = logging.getLogger("batchqueue_async")
    library.addHandler(handler)
    yield handler
    library.removeHandler(handler)


def added(logger: logging.Logger, handler: BatchingHandler) -> BatchingHandler:
    logger.addHandler(handler)
    return handler


def test_records_arrive_in_order_and_flush_waits_for_them(
    logger: logging.Logger,
) -> None:
    sink = Sink()
    handler = added(logger, BatchingHandler(sink, linger=60))
    for number in range(100):
        logger.info("line %d of %s", number, "many")
    handler.flush()
    assert sink.messages == [f"line {number} of many" for number in range(100)]
    assert sink.batches == 1
    assert handler.dropped == 0


@pytest.mark.real_time
async def test_four_threads_and_the_loop_log_into_a_dead_sink(
    logger: logging.Logger, reports: Reports
) -> None:
    sink = Sink()
    sink.gate.clear()
    handler = added(logger, BatchingHandler(sink, capacity=100, shutdown_timeout=0.1))

    def log() -> None:
        for number in range(2000):
            logger.info("%d", number)

    calls = [in_background(log) for _ in range(4)]
    log()
    await asyncio.gather(*map(asyncio.wrap_future, calls))
    assert handler._queue is not None
    stats = check_accounts(handler._queue)
    assert handler.dropped == stats.rejected == 5 * 2000 - stats.accepted
    assert 100 <= stats.accepted <= 1100
    await asyncio.to_thread(wait_until, lambda: reports.counts)
    logger.info("one more")
    handler.close()
    assert sum(reports.counts) == handler.dropped
    assert len(reports.counts) <= 3
    assert sink.messages == []


def test_what_was_dropped_is_reported_once_a_second(
    logger: logging.Logger, reports: Reports
) -> None:
    sink = Sink()
    sink.gate.clear()
    handler = added(logger, BatchingHandler(sink, capacity=1, linger=0))

    def log_until(count: int) -> None:
        while len(reports.counts) < count:
            logger.info("a line")
            threading.Event().wait(0.001)

    answers([in_background(log_until, 2)])
    assert len(reports.counts) == 2
    assert min(reports.counts) > 50
    sink.gate.set()
    handler.close()
    assert sum(reports.counts) == handler.dropped
    assert "the target is slow or down" in reports.lines[0]


def failing(logger: logging.Logger, *, is_async: bool) -> tuple[Any, list[int]]:
    """A sink that logs, and fails with each batch."""
    batches: list[int] = []

    def consume(batch: list[Record]) -> None:
        batches.append(len(batch))
        logger.error("from the sink, or its client")
        msg = "the sink is down"
        raise OSError(msg)

    async def consume_async(batch: list[Record]) -> None:
        await asyncio.to_thread(logger.error, "from a thread of the sink")
        consume(batch)

    return (consume_async if is_async else consume), batches


@pytest.mark.parametrize("is_async", [False, True])
def test_the_way_s_own_lines_do_not_come_back(
    capsys: pytest.CaptureFixture[str], *, is_async: bool
) -> None:
    """All of the program's lines go there, the library's and asyncio's, too."""
    root = logging.getLogger()
    level, kept = root.level, root.handlers[:]
    sink, batches = failing(root, is_async=is_async)
    both = [BatchingHandler(sink, linger=0), BatchingHandler(sink, linger=0)]
    root.setLevel(logging.DEBUG)
    root.handlers[:] = both
    try:
        for _ in range(3):
            root.info("a line")
            for each in both:
                each.flush()
        assert len(batches) == sum(batches) == 6
        for each in both:
            each.close()
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
    assert len(batches) == 6
    printed = capsys.readouterr().err
    assert printed.count("from the sink, or its client") == 6
    assert "the sink is down" in printed


def test_a_handler_of_logging_as_target(logger: logging.Logger, tmp_path: Path) -> None:
    file = logging.FileHandler(tmp_path / "log")
    file.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    file.setLevel(logging.INFO)
    handler = added(logger, BatchingHandler(file))
    logger.debug("too quiet")
    logger.info("loud %s", "enough")
    handler.close()
    file.close()
    assert (tmp_path / "log").read_text() == "INFO tests.logs loud enough\n"


def test_a_record_is_made_final_when_it_is_logged(logger: logging.Logger) -> None:
    records: list[Record] = []
    handler = added(logger, BatchingHandler(records.extend))
    handler.setFormatter(logging.Formatter("%(user)s: %(message)s"))
    things = ["one"]
    try:
        things.remove("two")
    except ValueError:
        logger.exception("saw %s", things, extra={"user": "me"})
    things.append("two")
    handler.flush()
    text, *trace = records[0].getMessage().splitlines()
    assert text == "me: saw ['one']"
    assert trace[-1] == "ValueError: list.remove(x): x not in list"
    assert records[0].exc_info is None
    assert vars(records[0])["user"] == "me"


def test_filters_hold(logger: logging.Logger) -> None:
    sink = Sink()
    handler = added(logger, BatchingHandler(sink))
    handler.addFilter(lambda record: "secret" not in record.getMessage())
    logger.info("a secret")
    logger.info("no news")
    handler.flush()
    assert sink.messages == ["no news"]


def test_a_line_that_cannot_be_made_is_reported_as_logging_does(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = BatchingHandler(Sink())
    record = logger.makeRecord("tests", logging.INFO, "file", 1, "%d", ("text",), None)
    handler.handle(record)
    assert "--- Logging error ---" in capsys.readouterr().err
    assert handler.dropped == 0


def test_where_stderr_is_closed_nobody_fails() -> None:
    """A target that logged failed by its own line, and its batch was lost."""
    logger = logging.Logger("alone")  # noqa: LOG001 - pytest has handlers at others
    got: list[str] = []

    def ship(records: list[logging.LogRecord]) -> None:
        logger.warning("a line of the target's")
        got.extend(each.getMessage() for each in records)

    stderr = io.StringIO()
    stderr.close()
    handler = added(logger, BatchingHandler(ship))
    with contextlib.redirect_stderr(stderr):
        logger.info("shipped")
        handler.close()
    assert got == ["shipped"]
    assert handler.dropped == 0


def test_a_target_s_hooks_are_called(logger: logging.Logger) -> None:
    ticked = threading.Event()

    class Target:
        calls: list[str] = []  # noqa: RUF012
        tick_every = 0.001

        def on_open(self) -> None:
            self.calls.append("open")

        def consume(self, batch: list[Record]) -> None:
            self.calls.append(f"{len(batch)} records")

        def on_tick(self) -> None:
            ticked.set()

        def on_flush(self) -> None:
            self.calls.append("flush")

        def on_close(self) -> None:
            self.calls.append("close")

    handler = added(logger, BatchingHandler(Target()))
    logger.info("a line")
    handler.flush()
    assert ticked.wait(PATIENCE)
    handler.close()
    assert Target.calls == ["open", "1 records", "flush", "close"]


def test_a_target_that_fails_is_tried_again_if_asked_for(
    logger: logging.Logger, reports: Reports
) -> None:
    tried: list[list[str]] = []

    def send(batch: list[Record]) -> None:
        tried.append([each.getMessage() for each in batch])
        if len(tried) == 1:
            msg = "the collector is away"
            raise ConnectionError(msg)
        if len(tried) == 2:
            raise PartialFailure([1])

    retry = Retry(attempts=3, wait_initial=0)
    handler = added(logger, BatchingHandler(send, linger=60, retry=retry))
    for line in ("one", "two", "three"):
        logger.info(line)
    handler.flush()
    assert tried == [["one", "two", "three"], ["one", "two", "three"], ["two"]]
    assert len(reports.lines) == 2
    assert "attempt 2 of 3" in reports.lines[0]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
@pytest.mark.parametrize("is_cold", [False, True])
def test_signal_handlers_log_in_the_middle_of_it(
    logger: logging.Logger, *, is_cold: bool
) -> None:
    sink, struck = Sink(), 0
    handler = added(logger, BatchingHandler(sink, capacity=50, linger=0))

    def strike(*_: object) -> None:
        nonlocal struck
        struck += 1
        logger.info("from the signal handler")

    if not is_cold:
        logger.info("begun")
    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 2e-4)
    try:
        logged = 0 if is_cold else 1
        while struck < 500:
            logger.info("from the program")
            logged += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    handler.flush()
    assert len(sink.messages) + handler.dropped == logged + struck


@pytest.mark.parametrize(
    "change, message",
    [
        ({"capacity": 0}, "capacity must be >= 1, got 0"),
        ({"max_batch": 0}, "max_batch must be >= 1, got 0"),
        ({"linger": -1}, "linger must be >= 0, got -1"),
        ({"retry": 3}, "retry must be a Retry .*, or None, got 3"),
        ({"shutdown_timeout": -1}, "shutdown_timeout must be a number of seconds"),
        ({"target": 5}, "target must be callable or have a consume method"),
        ({"target": Sink}, "target must be a handler, not its class"),
        # It would lose all records, without a word.
        ({"target": BatchingHandler(print)}, "another handler than a BatchingHandler"),
        ({"target": logging.StreamHandler}, "a handler, not its class, got <class"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"target": print, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        BatchingHandler(**arguments)


def test_an_async_target_that_looks_blocking_is_named(
    logger: logging.Logger, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    """What a plain decorator makes of an async function can't be known before."""

    async def ship(_: list[Record]) -> None: ...

    def looks_blocking(batch: list[Record]) -> object:
        return ship(batch)

    name = looks_blocking.__qualname__
    handler = added(logger, BatchingHandler(looks_blocking, linger=0.01))
    logger.info("one")
    handler.flush()
    assert reports.lines == [f"logging: 1 items failed in in_thread({name})"]
    assert "looks_blocking, which is async: pass it without in_thread" in caplog.text


class Refusing:
    def consume(self, records: list[Record]) -> None:
        raise ConnectionError(records)


@pytest.mark.parametrize("target", [Refusing(), Refusing().consume])
def test_its_messages_name_the_target(
    logger: logging.Logger, reports: Reports, target: HandlerLike[Record]
) -> None:
    """A program may have several of them, and each one's queue is named "logging"."""
    handler = added(logger, BatchingHandler(target, linger=0.01))
    logger.info("one")
    handler.flush()
    name = "Refusing" if isinstance(target, Refusing) else "Refusing.consume"
    assert reports.lines == [f"logging: 1 items failed in in_thread({name})"]


# --- programs

PROGRAM = """
import logging.config

def ship(records):
    with open(sys.argv[1], "a") as file:
        for each in records:
            file.write(f"{each.levelname} {each.getMessage()}\\n")

logging.config.dictConfig({
    "version": 1,
    "handlers": {
        "shipped": {
            "class": "batchqueue_async.logging.BatchingHandler",
            "target": "ext://__main__.ship",
            "capacity": 5000,
            "linger": 60,
        },
    },
    "root": {"level": "DEBUG", "handlers": ["shipped"]},
})
log = logging.getLogger("program")
"""

ENDS = {
    "the end": "",
    "sys.exit": "sys.exit(0)",
    "os._exit": "logging.shutdown(); os._exit(0)",
    "on a loop": "asyncio.run(asyncio.to_thread(log.info, 'last'), debug=True)",
}


@each_python
@pytest.mark.parametrize("end", ENDS)
def test_dict_config_and_what_waits_at_the_end(
    python: Path, end: str, tmp_path: Path
) -> None:
    lines = "\nfor number in range(1000): log.info('%d', number)\n"
    program = Program(PROGRAM + lines + ENDS[end], str(tmp_path / "log"), python=python)
    ended = program.end()
    assert (ended.status, ended.log) == (0, "")
    shipped = (tmp_path / "log").read_text().splitlines()
    numbers = [each for each in shipped if each.startswith("INFO")][:1000]
    assert numbers == [f"INFO {number}" for number in range(1000)]


WORKING = """
import atexit, multiprocessing
from concurrent.futures import ThreadPoolExecutor

def work(number):
    for part in range(20):
        time.sleep(0.002)
        log.info("%s, part %d", number, part)

def begin_work(where):
    log.info("first in %s", where)
    threading.Thread(target=work, args=(where,)).start()

if __name__ == "__main__":
    atexit.register(log.info, "last")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=begin_work, args=("child",))
    child.start()
    child.join()
    pool = ThreadPoolExecutor(2)
    for number in range(8):
        pool.submit(work, number)
    begin_work("main")
"""


@each_python
def test_threads_that_work_on_after_the_main_one_log(
    python: Path, tmp_path: Path
) -> None:
    """And so do functions that `atexit` calls, and the threads of a pool."""
    program = Program(PROGRAM + WORKING, str(tmp_path / "log"), python=python)
    ended = program.end()
    assert (ended.status, ended.log) == (0, "")
    parts = [f"{each}, part {part}" for each in range(8) for part in range(20)]
    for where in ("child", "main"):
        parts += [f"first in {where}", *(f"{where}, part {part}" for part in range(20))]
    lines = (tmp_path / "log").read_text().splitlines()
    lines = [each for each in lines if each.startswith("INFO")]
    assert sorted(lines) == sorted(f"INFO {each}" for each in [*parts, "last"])


FEEDING = """
from batchqueue_async import BatchQueueConfig, process_queue
from batchqueue_async.logging import BatchingHandler

def open_queue(loop_thread):
    return loop_thread.open("lines", BatchQueueConfig(consumer=store, linger=1.0))

def store(lines):
    ship([logging.makeLogRecord({"msg": each}) for each in lines])

def feed(records):
    for each in records:
        process_queue(open_queue).produce(each.getMessage())

process_queue(open_queue)
log.addHandler(BatchingHandler(feed, linger=60))
log.propagate = False
for number in range(100):
    log.info("%d", number)
"""


@each_python
def test_a_queue_that_the_target_feeds_is_drained_after_it(
    python: Path, tmp_path: Path
) -> None:
    program = Program(PROGRAM + FEEDING, str(tmp_path / "log"), python=python)
    ended = program.end()
    assert (ended.status, ended.log) == (0, "")
    lines = (tmp_path / "log").read_text().split()
    assert [each for each in lines if each.isdigit()] == [*map(str, range(100))]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it starts no thread then")
def test_a_target_may_be_the_first_to_use_a_queue_at_the_exit(tmp_path: Path) -> None:
    feeding = FEEDING.replace("\nprocess_queue(open_queue)\n", "\n")
    ended = Program(PROGRAM + feeding, str(tmp_path / "log")).end()
    assert (ended.status, ended.log) == (0, "")
    lines = (tmp_path / "log").read_text().split()
    assert [each for each in lines if each.isdigit()] == [*map(str, range(100))]


FORKED = """
log.info("parent %d", os.getpid())
children = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        threads = [
            threading.Thread(target=log.info, args=("child %d", os.getpid()))
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert logging.getLogger().handlers[0].dropped == 0
        sys.exit(0)
    log.info("parent %d", os.getpid())
    children.append(pid)
for each in children:
    assert os.waitpid(each, 0)[1] == 0
"""


@each_python
def test_a_forked_child_ships_its_own(python: Path, tmp_path: Path) -> None:
    program = Program(PROGRAM + FORKED, str(tmp_path / "log"), python=python)
    ended = program.end()
    assert (ended.status, ended.log) == (0, "")
    lines = (tmp_path / "log").read_text().splitlines()
    counts = {each: lines.count(each) for each in lines if "INFO" in each}
    assert sorted(counts.values()) == [4, 4, 4, 4, 5]


DEAD = """
import batchqueue_async.logging

def ship(records):
    threading.Event().wait()

handler = batchqueue_async.logging.BatchingHandler(
    ship, capacity=5000, linger=0, shutdown_timeout=0.2
)
logging.getLogger().handlers = [handler]
for number in range(20000): log.info("%d", number)
print(handler.dropped, flush=True)
"""


@each_python
def test_a_dead_sink_does_not_hold_up_the_end(python: Path, tmp_path: Path) -> None:
    ended = Program(PROGRAM + DEAD, str(tmp_path / "log"), python=python).end()
    assert ended.status == 0
    assert 14000 <= int(ended.output) <= 15000
    assert f"({ended.output} in all)" in ended.log
