"""A `logging.Handler` that hands records over in batches, and holds nobody up."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

from batchqueue_async import (
    BatchHandler,
    BatchQueueConfig,
    BatchQueueError,
    LoopThread,
    Offer,
    Retry,
    SyncBatchQueue,
    close_process_queues,
    in_thread,
    process_queue,
)
from batchqueue_async._bridge.at_exit import is_exiting
from batchqueue_async._bridge.loop_run import refuse_greenlets
from batchqueue_async._bridge.loop_thread import run_of
from batchqueue_async._engine.queue import parts_of
from batchqueue_async._functions import attribute_of, is_async, name_of, taker_of
from batchqueue_async._policies.handler_checks import HOOKS, require_handler
from batchqueue_async._policies.handlers import HandlerLike
from batchqueue_async._validation import (
    refuse,
    require_instance,
    require_int,
    require_timeout,
)

__all__ = ["BatchingHandler"]

_THREAD = "batchqueue-logging"
_PERIOD = 1.0

_DROPPED = (
    "%d log record%s dropped (%d in all): the target is slow or down, or the program"
    " ends"
)

_logger = logging.getLogger("batchqueue_async.logging")

# Set while records are passed to a target: what is logged then must not come back.
_on_its_way: ContextVar[bool] = ContextVar("batchqueue_logging", default=False)


class BatchingHandler(logging.Handler):
    """Puts records into a queue of its own, whose handler is `target`.

    `emit` never waits: where `capacity` records wait already, or the handler is being
    closed, the record is dropped and counted. At most once a second a WARNING of the
    logger `batchqueue_async.logging` says how many were. It may be called on event
    loops, on threads, in signal handlers and in `__del__`, and holds no lock while it
    is.

    The queue runs on a thread of its own, started by the first record; in a forked
    child by the child's first one. It is drained when the handler is closed and when
    the interpreter exits, after the threads that the exit waits for have ended. Before
    an `os._exit` call `close` or `logging.shutdown`.

    What is logged on that thread (by the target, its client, or this library about its
    failures) does not come back into any `BatchingHandler`. Without another handler,
    such as the console's, it is printed to stderr, from WARNING on.

    Records are prepared as `logging.handlers.QueueHandler` does it, in the caller's
    thread: `record.message` and `record.msg` are the text that the handler's formatter
    makes, with a traceback if there is one.

    Args:
        target: Gets batches of records: a handler as a queue's (a function or an object
            with `consume`; a blocking one runs on a thread), or a `logging.Handler`,
            which gets them one by one, but no `BatchingHandler`. One that raises loses
            its batch, unless `retry` says otherwise; what it loses is logged by number.
        capacity: How many records wait at most, beside the batch on its way.
        max_batch: How many records a batch has at most.
        linger: Seconds that a record waits for its batch to fill.
        retry: How often a batch is given to a target that raised; once by default.
            Meanwhile `capacity` records wait, and what comes then is dropped.
        shutdown_timeout: Seconds that closing, `flush` and the interpreter's exit wait
            for the target; None for no limit. What is left then is logged by number.

    Raises:
        TypeError, ValueError: An argument is wrong.
        BatchQueueError: gevent or eventlet makes greenlets of threads.
    """

    def __init__(  # noqa: PLR0913 - each is a setting with a default
        self,
        target: HandlerLike[logging.LogRecord] | logging.Handler,
        *,
        capacity: int = 10_000,
        max_batch: int = 1000,
        linger: float = 1.0,
        retry: Retry | None = None,
        shutdown_timeout: float | None = 5.0,
    ) -> None:
        require_int("capacity", capacity, at_least=1)
        require_int("max_batch", max_batch, at_least=1)
        if retry is not None:
            require_instance(
                "retry", retry, Retry, "a Retry such as Retry(attempts=3), or None"
            )
        require_timeout("shutdown_timeout", shutdown_timeout)
        self._config = BatchQueueConfig(
            # One for all queues that are opened in turn: only one calls the target.
            consumer=_consumer(target),
            buffer_size=capacity,
            max_batch=max_batch,
            linger=linger,
            retry=retry or Retry(),
        )
        self._shutdown_timeout = shutdown_timeout
        refuse_greenlets(_THREAD)
        self._start_anew()
        super().__init__()

    @property
    def dropped(self) -> int:
        """How many records this process has dropped here; exact."""
        self._leave_to_parent()
        # `next` is atomic, so that no lock is needed, which a signal handler could find
        # taken. Its count can only be seen in the repr.
        return int(repr(self._drops)[len("count(") : -1])

    def handle(self, record: logging.LogRecord) -> bool | logging.LogRecord:  # type: ignore[override]
        """Emit the record if the filters let it pass; takes no lock."""
        passed: bool | logging.LogRecord = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Put the record into the queue, or count it as dropped."""
        try:
            if _on_its_way.get() or (record.threadName or "").startswith(_THREAD):
                _print_unless_others_do(record, self)
            elif not self._offer(self.prepare(record)):
                self._drop()
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - as each handler of `logging` does
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - theirs
        """Tell on stderr what went wrong, as `logging` does; never raise."""
        # A stderr that was closed raises, and who logs, such as the target, would fail.
        with contextlib.suppress(Exception):
            super().handleError(record)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return what is put into the queue: a copy whose text is made now."""
        text = self.format(record)
        record = copy.copy(record)
        record.message = record.msg = text
        # The text has these; kept, they would keep frames and all that is in them.
        record.args = record.exc_info = record.exc_text = record.stack_info = None
        return record

    def flush(self) -> None:
        """Wait until the target got what was logged before, or `shutdown_timeout`.

        While `logging` is being configured it returns at once: see `close`.
        """
        self._leave_to_parent()
        if self._queue is not None and not _is_configuring():
            with contextlib.suppress(BatchQueueError, TimeoutError):
                self._queue.flush(self._shutdown_timeout)

    def close(self) -> None:
        """Hand over what waits, end the thread, and report what was dropped.

        Waits for `shutdown_timeout` at most. What is logged here meanwhile is dropped;
        what comes later opens it again, until the interpreter exits, as a `FileHandler`
        opens its file again: `logging.config` closes all handlers, also those that
        loggers keep. It has the lock of `logging` then, for which the target may wait:
        so nothing is waited for, and it is closed later, unless a logger still has it.
        """
        super().close()
        self._leave_to_parent()
        if not _is_configuring():
            self._close()
        elif self._queue is not None:
            # If no thread can start the interpreter exits, which closes the queue.
            with contextlib.suppress(RuntimeError):
                threading.Thread(
                    target=self._close_unless_in_use, name=_THREAD, daemon=True
                ).start()

    def _close(self) -> None:
        self._is_closing = True
        try:
            if not _on_its_way.get():
                with contextlib.suppress(BatchQueueError):
                    close_process_queues([self._open_queue])
            self._report()
        finally:
            self._is_closing = False

    def _close_unless_in_use(self) -> None:
        with _lock_of_logging():
            loggers = [logging.root, *logging.root.manager.loggerDict.values()]
            is_in_use = any(self in getattr(each, "handlers", ()) for each in loggers)
            if is_in_use:
                # So that `logging.shutdown` closes it.
                logging._addHandlerRef(self)  # type: ignore[attr-defined]  # noqa: SLF001
        if not is_in_use:
            self._close()

    def _start_anew(self) -> None:
        self._queue: SyncBatchQueue[logging.LogRecord] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drops = itertools.count()
        self._reported = 0
        self._is_report_due = False
        # The threads that are opening the queue, where a signal handler may log.
        self._openers: set[int] = set()
        self._is_closing = False
        # Last: of a child's threads each begins anew until one has.
        self._process = os.getpid()

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked child: queue and counts are the parent's.

        So is what goes on there, such as a close, which never ends here.
        """
        if self._process != os.getpid():
            self._start_anew()

    def _offer(self, record: logging.LogRecord) -> bool:
        self._leave_to_parent()
        if self._queue is not None:
            # It raises where its loop has ended by itself.
            with contextlib.suppress(BatchQueueError):
                offered = self._queue.offer(record)
                if offered is not Offer.CLOSED or is_exiting():
                    return bool(offered)
        queue = self._opened()
        return queue is not None and bool(queue.offer(record))

    def _opened(self) -> SyncBatchQueue[logging.LogRecord] | None:
        me = threading.get_ident()
        if self._is_closing or me in self._openers:
            return None
        self._openers.add(me)
        try:
            make = partial(LoopThread, _THREAD, shutdown_timeout=self._shutdown_timeout)
            self._queue = process_queue(self._open_queue, make_loop_thread=make)
        except BatchQueueError:
            # No thread can start, as at the interpreter's exit.
            return None
        finally:
            self._openers.discard(me)
        return self._queue

    def _open_queue(self, loop_thread: LoopThread) -> SyncBatchQueue[logging.LogRecord]:
        queue = loop_thread.open("logging", self._config)
        if (run := run_of(loop_thread)) is not None:
            # At the interpreter's exit other threads may log until they have ended: the
            # queue is closed after them, by the end of `process_queue`.
            run.is_late = True
        self._loop = parts_of(queue.queue).loop
        # Again: what was due on the loop before, which has ended, never comes.
        self._report_later()
        return queue

    def _drop(self) -> None:
        next(self._drops)
        if not self._is_report_due:
            self._report_later()

    def _report_later(self) -> None:
        """Report on the queue's loop: it may take time, and `emit` never waits."""
        self._is_report_due = True
        if (loop := self._loop) is not None:
            # Raised if it is closed: the next one, or closing, makes the report.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.call_later, _PERIOD, self._report)

    def _report(self) -> None:
        self._is_report_due = False
        dropped = self.dropped
        new, self._reported = dropped - self._reported, dropped
        if new:
            with _on_the_way():
                _say_dropped(new, dropped)


class _Target:
    """A target whose own log lines are known as such."""

    consume: Callable[..., Any]

    def __init__(self, target: HandlerLike[logging.LogRecord], name: str) -> None:
        # As which messages and `stats()` know it.
        self.__qualname__ = name
        consume: Any = taker_of(target)
        self.consume = _marking(consume)
        if hasattr(target, "tick_every"):
            self.tick_every = target.tick_every
        for hook in HOOKS:
            call = attribute_of(target, hook)
            if call is not None:
                setattr(self, hook, _marking(call))


def _marking(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` wrapped, async if it is: what it logs is marked as the target's."""

    async def call_async(*args: object) -> object:
        with _on_the_way():
            return await call(*args)

    def call_sync(*args: object) -> object:
        with _on_the_way():
            return call(*args)

    known = call_async if is_async(call) else call_sync
    # Messages name it as the target that it wraps.
    known.__qualname__ = name_of(call)
    return known


def _consumer(
    target: HandlerLike[logging.LogRecord] | logging.Handler,
) -> HandlerLike[logging.LogRecord]:
    if isinstance(target, BatchingHandler):
        # It drops all records that are logged while another one passes records on.
        but = "which refuses what one passes on"
        rule = f"another handler than a BatchingHandler, {but}"
        refuse("target", rule, target, TypeError)
    if isinstance(target, type) and issubclass(target, logging.Handler):
        refuse("target", "a handler, not its class", target, TypeError)
    name = name_of(target)
    if isinstance(target, logging.Handler):
        target = partial(_handle_each, target)
    require_handler("target", target)
    handler: BatchHandler[logging.LogRecord] = _Target(target, name)
    is_async = inspect.iscoroutinefunction(handler.consume)
    return handler if is_async else in_thread(handler)


def _handle_each(target: logging.Handler, records: list[logging.LogRecord]) -> None:
    for each in records:
        if each.levelno >= target.level:
            target.handle(each)


@contextlib.contextmanager
def _on_the_way() -> Iterator[None]:
    token = _on_its_way.set(True)
    try:
        yield
    finally:
        _on_its_way.reset(token)


def _say_dropped(new: int, dropped: int) -> None:
    """Log it, also where `dictConfig` has disabled the logger, as is its default."""
    if _logger.getEffectiveLevel() <= logging.WARNING:
        arguments = (new, "" if new == 1 else "s", dropped)
        line = (_logger.name, logging.WARNING, __file__, 0, _DROPPED, arguments, None)
        _logger.callHandlers(_logger.makeRecord(*line, extra={"items": new}))


def _print_unless_others_do(record: logging.LogRecord, me: BatchingHandler) -> None:
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    # One of no logger, such as a sink of loguru's: who else got the record is unknown.
    # Of several BatchingHandlers the first one prints it.
    is_alone = me not in handlers or (
        me is handlers[0]
        and all(isinstance(each, BatchingHandler) for each in handlers)
    )
    if is_alone and (last := logging.lastResort) and record.levelno >= last.level:
        last.handle(record)


def _lock_of_logging() -> Any:  # noqa: ANN401 - an RLock
    return logging._lock  # type: ignore[attr-defined]  # noqa: SLF001


def _is_configuring() -> bool:
    """Whether the caller has `logging`'s lock, for which threads that log may wait."""
    return bool(_lock_of_logging()._is_owned())  # noqa: SLF001
