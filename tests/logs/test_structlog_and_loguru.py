"""structlog's and loguru's ways into `BatchingHandler`, with the real packages."""

import json
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog
from loguru import logger as loguru_logger

from batchqueue_async.logging import BatchingHandler

Record = logging.LogRecord


class Sink:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def consume(self, batch: list[Record]) -> None:
        self.records += batch

    @property
    def messages(self) -> list[str]:
        return [each.getMessage() for each in self.records]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def handler(sink: Sink) -> Iterator[BatchingHandler]:
    handler = BatchingHandler(sink, linger=60)
    yield handler
    handler.close()


@pytest.fixture
def shop(handler: BatchingHandler) -> Iterator[logging.Logger]:
    """The logger of `logging` that structlog's events go to."""
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processor=structlog.processors.JSONRenderer(),
            foreign_pre_chain=[structlog.stdlib.add_log_level],
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    shop = logging.getLogger("tests.shop")
    shop.setLevel(logging.INFO)
    shop.propagate = False
    shop.addHandler(handler)
    yield shop
    shop.removeHandler(handler)
    structlog.reset_defaults()


def test_structlog_s_events_are_shipped_as_json(
    shop: logging.Logger, handler: BatchingHandler, sink: Sink
) -> None:
    log = structlog.get_logger("tests.shop").bind(order=17)
    with structlog.contextvars.bound_contextvars(request="r1"):
        log.info("sold", euros=5)
    log.debug("too quiet")
    shop.warning("from %s itself", "logging")
    handler.flush()
    assert [json.loads(each) for each in sink.messages] == [
        {"event": "sold", "order": 17, "request": "r1", "euros": 5, "level": "info"},
        {"event": "from logging itself", "level": "warning"},
    ]
    assert [each.levelname for each in sink.records] == ["INFO", "WARNING"]


def test_structlog_s_exceptions_and_values_are_those_of_their_time(
    shop: logging.Logger, handler: BatchingHandler, sink: Sink
) -> None:
    log = structlog.get_logger("tests.shop")
    basket = ["apple"]
    try:
        basket.remove("pear")
    except ValueError:
        log.exception("failed", basket=basket)
    basket.append("plum")
    handler.flush()
    event = json.loads(sink.messages[0])
    assert event["basket"] == ["apple"]
    assert event["exception"].endswith("ValueError: list.remove(x): x not in list")
    assert sink.records[0].exc_info is None


def test_a_target_may_use_structlog_itself(
    shop: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[int] = []

    def send(batch: list[Record]) -> None:
        batches.append(len(batch))
        structlog.get_logger("tests.shop").warning("slow", batch=len(batch))

    handler = BatchingHandler(send, linger=0)
    shop.handlers[:] = [handler]
    structlog.get_logger("tests.shop").info("one")
    handler.close()
    assert batches == [1]
    assert "'event': 'slow'" in capsys.readouterr().err


@pytest.fixture
def loguru() -> Iterator[None]:
    """No sink of its own, as a program has it that ships all lines."""
    loguru_logger.remove()
    yield
    loguru_logger.remove()


@pytest.mark.usefixtures("loguru")
def test_loguru_s_lines_are_shipped(handler: BatchingHandler, sink: Sink) -> None:
    loguru_logger.add(handler, format="{level} {message} {extra[order]}", level="INFO")
    log = loguru_logger.bind(order=17)
    log.info("sold for {} euros", 5)  # noqa: PLE1205 - it is no `logging.Logger`
    log.debug("too quiet")
    log.success("paid")
    handler.flush()
    assert sink.messages == ["INFO sold for 5 euros 17", "SUCCESS paid 17"]
    assert [each.levelname for each in sink.records] == ["INFO", "SUCCESS"]
    assert vars(sink.records[0])["extra"] == {"order": 17}


@pytest.mark.usefixtures("loguru")
def test_loguru_s_exceptions_come_once_as_text(
    handler: BatchingHandler, sink: Sink
) -> None:
    loguru_logger.add(handler, format="{message}", diagnose=False)
    try:
        int("no number")
    except ValueError:
        loguru_logger.exception("failed")
    handler.flush()
    text = sink.messages[0]
    assert text.startswith("failed\n")
    assert text.count("ValueError: invalid literal") == 1
    assert sink.records[0].exc_info is None


@pytest.mark.usefixtures("loguru")
def test_removing_the_handler_from_loguru_hands_over_what_waits(
    handler: BatchingHandler, sink: Sink
) -> None:
    number = loguru_logger.add(handler, format="{message}")
    for each in range(100):
        loguru_logger.info(each)
    loguru_logger.remove(number)
    assert sink.messages == [str(each) for each in range(100)]


@pytest.mark.usefixtures("loguru")
def test_nobody_waits_for_a_dead_target_behind_loguru() -> None:
    gate = threading.Event()

    def send(_: list[Record]) -> None:
        gate.wait(30)

    handler = BatchingHandler(send, capacity=10, linger=0, shutdown_timeout=30)
    number = loguru_logger.add(handler, format="{message}")
    threads = [
        threading.Thread(target=lambda: [loguru_logger.info(n) for n in range(500)])
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # The rest waits, or is in the target's hands.
    assert 2000 - 20 <= handler.dropped <= 2000 - 10
    gate.set()
    loguru_logger.remove(number)


@pytest.mark.usefixtures("loguru")
def test_a_target_may_use_loguru_itself(capsys: pytest.CaptureFixture[str]) -> None:
    batches: list[int] = []

    def send(batch: list[Record]) -> None:
        batches.append(len(batch))
        loguru_logger.warning("slow")

    handler = BatchingHandler(send, linger=0)
    number = loguru_logger.add(handler, format="{message}")
    loguru_logger.info("one")
    handler.flush()
    loguru_logger.remove(number)
    assert batches == [1]
    assert "slow" in capsys.readouterr().err
