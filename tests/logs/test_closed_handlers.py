"""A handler that was closed, by `logging.config` perhaps, and is still logged into."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchqueue_async import close_process_queues
from batchqueue_async.logging import BatchingHandler
from tests.bridge.background import PATIENCE, answers, in_background
from tests.bridge.programs import Program, each_python


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.logs.closed")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for each in list(logger.handlers):
        logger.removeHandler(each)
        each.close()


def added(logger: logging.Logger, handler: BatchingHandler) -> BatchingHandler:
    logger.addHandler(handler)
    return handler


@pytest.mark.parametrize("by_all", [False, True])
def test_what_is_logged_after_the_close_opens_it_again(
    logger: logging.Logger, *, by_all: bool
) -> None:
    got: list[str] = []

    def ship(records: list[logging.LogRecord]) -> None:
        got.extend(each.getMessage() for each in records)

    handler = added(logger, BatchingHandler(ship, linger=60))
    for number in range(3):
        logger.info("%d", number)
        if by_all:
            close_process_queues()
        else:
            handler.close()
        assert got == [str(each) for each in range(number + 1)]
    assert handler.dropped == 0


def test_what_was_dropped_before_is_reported_by_the_next_queue(
    logger: logging.Logger,
) -> None:
    """The report was due on a loop that ended first; none came until the close."""
    gate, is_reported = threading.Event(), threading.Event()
    reports: list[str] = []

    class Reports(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reports.append(record.getMessage())
            is_reported.set()

    def ship(_: list[logging.LogRecord]) -> None:
        gate.wait(PATIENCE)

    library = logging.getLogger("batchqueue_async.logging")
    library.addHandler(reporting := Reports())
    handler = added(logger, BatchingHandler(ship, capacity=1, linger=0))
    while handler.dropped < 3:
        logger.info("more than there is room for")
    gate.set()
    close_process_queues()
    logger.info("opens the next one")
    assert is_reported.wait(PATIENCE)
    library.removeHandler(reporting)
    assert reports[0].startswith("3 log records dropped (3 in all)")


def test_a_call_that_outlasts_the_close_is_alone_in_the_target(
    logger: logging.Logger,
) -> None:
    entered, gate, inside = threading.Semaphore(0), threading.Event(), []
    most: list[int] = []

    def ship(records: list[logging.LogRecord]) -> None:
        inside.append(1)
        most.append(len(inside))
        entered.release()
        assert gate.wait(PATIENCE)
        inside.pop()

    handler = added(logger, BatchingHandler(ship, linger=0, shutdown_timeout=0.1))
    logger.info("stuck")
    assert entered.acquire(timeout=PATIENCE)
    handler.close()
    logger.info("next")
    assert not entered.acquire(timeout=0.2)
    gate.set()
    assert entered.acquire(timeout=PATIENCE)
    handler.flush()
    assert most == [1, 1]


def test_under_the_lock_of_logging_it_does_not_wait_for_a_target_that_logs(
    logger: logging.Logger,
) -> None:
    got: list[str] = []

    def ship(records: list[logging.LogRecord]) -> None:
        # Asks for the lock: the logger is new.
        logging.getLogger(f"tests.logs.{len(got)}.{id(got)}").debug("on its way")
        got.extend(each.getMessage() for each in records)

    handler = added(logger, BatchingHandler(ship, linger=60, shutdown_timeout=None))
    before = threading.active_count()
    logger.info("first")

    def reconfigure() -> None:
        with logging._lock:  # type: ignore[attr-defined]
            handler.flush()
            handler.close()

    answers([in_background(reconfigure)])
    logger.info("second")
    handler.flush()
    assert got == ["first", "second"]
    logger.removeHandler(handler)
    answers([in_background(reconfigure)])
    while threading.active_count() > before:
        threading.Event().wait(0.01)
    assert handler.dropped == 0


CONFIGURED_BY_TWO = """
import logging.config
from batchqueue_async.logging import BatchingHandler

def ship(records):
    logging.getLogger("client of %d" % len(records)).debug("on its way")
    with open(sys.argv[1], "a") as file:
        for each in records:
            file.write(each.getMessage() + "\\n")

logging.basicConfig(
    force=True,
    level=logging.INFO,
    format="%(message)s",
    handlers=[BatchingHandler(ship, linger=60)],
)
logging.info("before")
# As a web server does when it starts, for loggers of its own.
logging.config.dictConfig({
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"server": {"class": "logging.NullHandler"}},
    "loggers": {"server": {"handlers": ["server"]}},
})
logging.info("after")
"""

OS_EXIT = """
while len(logging._handlerList) < 2:
    time.sleep(0.001)
logging.shutdown()
os._exit(0)
"""

ENDS = {"exit": "", "os._exit": OS_EXIT}


@each_python
@pytest.mark.parametrize("end", ENDS)
def test_a_server_configures_logging_after_the_program(
    python: Path, end: str, tmp_path: Path
) -> None:
    lines = CONFIGURED_BY_TWO + ENDS[end]
    ended = Program(lines, str(tmp_path / "log"), python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert (tmp_path / "log").read_text().split() == ["before", "after"]


CONFIGURED_AGAIN = """
import logging.config, sys

log = logging.getLogger("program")
for number in range(3):
    logging.config.dictConfig({
        "version": 1,
        "handlers": {
            "file": {"class": "logging.FileHandler", "filename": sys.argv[1]},
            "shipped": {
                "class": "batchqueue_async.logging.BatchingHandler",
                "target": "cfg://handlers.file",
                "linger": 60,
            },
        },
        "loggers": {
            "program": {"handlers": ["shipped"], "level": "INFO", "propagate": False},
        },
    })
    log.info("%d", number)
"""


@each_python
def test_the_target_may_be_of_the_same_configuration(
    python: Path, tmp_path: Path
) -> None:
    """It gets what waits, though each configuration closes both."""
    ended = Program(CONFIGURED_AGAIN, str(tmp_path / "log"), python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "2"]


FORKED = """
import logging, os, sys, threading
from batchqueue_async.logging import BatchingHandler

gate, entered = threading.Event(), threading.Event()

def ship(records):
    if os.getpid() == parent:
        entered.set()
        gate.wait()
    print(*(each.getMessage() for each in records), flush=True)

parent = os.getpid()
log = logging.getLogger("program")
log.setLevel("INFO")
handler = BatchingHandler(ship, capacity=2, linger=0)
log.addHandler(handler)
log.info("parent's")
entered.wait()
for _ in range(5):
    log.info("dropped, or not")
closing = threading.Thread(target=handler.close)
if sys.argv[1] == "while it is closed":
    closing.start()
    while not handler._is_closing:
        pass
if sys.argv[1] == "as that ends":
    ends, report = threading.Event(), handler._report
    handler._report = lambda: (ends.set(), told.wait(), report())
    told = threading.Event()
    gate.set()
    closing.start()
    ends.wait()
child = os.fork()
if child == 0:
    if sys.argv[1] == "as that ends":
        log.info("child's")
        del handler._report
    if sys.argv[1] != "and closes it":
        log.info("child's")
    logging.shutdown()
    print(handler.dropped, flush=True)
    os._exit(0)
os.waitpid(child, 0)
gate.set()
if sys.argv[1] == "as that ends":
    told.set()
"""


WAYS = ["while it is closed", "as that ends", "and logs", "and closes it"]


@each_python
@pytest.mark.parametrize("how", WAYS)
def test_a_child_that_is_forked_meanwhile_counts_and_ships_its_own(
    python: Path, how: str
) -> None:
    """It dropped all that it logged; and told again what its parent had dropped."""
    ended = Program(FORKED, how, python=python).end()
    child = ["0"] if how == "and closes it" else ["child's", "0"]
    parent = ["parent's", "dropped, or not dropped, or not"]
    lines = [*child, *parent]
    if how == "as that ends":
        lines = [*parent, "child's child's", "0"]
    assert ended.output.split() == " ".join(lines).split(), "in whatever batches"
    assert ended.log.count("3 log records dropped (3 in all)") == 1
