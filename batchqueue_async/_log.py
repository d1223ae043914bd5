"""The library's log: it never raises, so it harms no item, and does not repeat itself.

A handler whose database is down fails with each batch. Thousands of tracebacks a second
that all say the same would hide everything else, and cost more than the handling did.
So equal failures are logged once in full, and after that how many more there were.

Failures are equal if the same thing failed, with an exception of the same type that was
raised in the same line. There is no timer: what was counted is logged with the first
cycle or failure that comes a second later, and at the latest when the queue ends.

Beside its text a line has fields, which become attributes of its record, for whoever
writes JSON: the table in `docs/guides/logging.md` has all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import traceback
from typing import Any

from batchqueue_async._loop_time import LONG_AGO
from batchqueue_async._wording import reason, traceback_of

PERIOD = 1.0
"""Seconds between two lines about equal failures, at least, if no `period` is given."""
NEWS_AFTER = 60.0
"""A failure that was not seen for so many seconds is logged in full again."""
MOST = 256
"""Kinds of failures that are told apart; all others are counted together."""
MOST_LINES = 8
"""Lines that count failures at a time: of more kinds the last one is for all others."""


_SHARED = ("queue", "handler", "hook")


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls never raise, and whose other keywords are a line's fields.

    `logging` itself prints what goes wrong in its own handlers. A user's log handler
    may raise, and would end whoever logs: a drain task, say, with the items it holds.
    """

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: Any = None,  # noqa: ANN401 - as for `logging`
        stacklevel: int = 1,
        **fields: Any,  # noqa: ANN401 - None leaves one out
    ) -> None:
        if not self.isEnabledFor(level):
            return
        if isinstance(exc_info, BaseException):
            # A triple: `logging` tests an error for truth, and one with a length may be
            # false, or raise.
            exc_info = (type(exc_info), exc_info, traceback_of(exc_info))
        try:
            self.logger.log(
                level,
                msg,
                *args,
                exc_info=exc_info,
                # So that records name the caller and not this method.
                stacklevel=stacklevel + 1,
                extra=_known(fields, exc_info),
            )
        except Exception:  # noqa: BLE001
            # A stderr that was closed raises, and `logging` lets that through.
            with contextlib.suppress(Exception):
                if logging.raiseExceptions and sys.stderr is not None:
                    traceback.print_exc()


def _known(fields: dict[str, Any], exc_info: object) -> dict[str, Any]:
    """Return the fields that have a value, with what kind of error there was."""
    known = {name: value for name, value in fields.items() if value is not None}
    error = exc_info[1] if isinstance(exc_info, tuple) else sys.exception()
    if exc_info and error is not None:
        known.setdefault("error_type", type(error).__qualname__)
    return known


logger = SafeLogger(logging.getLogger("batchqueue_async"))


class _Kind:
    """Equal failures, and how many of them were not logged yet."""

    def __init__(
        self, title: str, level: int, period: float, now: float, fields: dict[str, Any]
    ) -> None:
        self.title = title
        self.fields = fields
        self.level = level
        self.period = period
        self.told_at = self.seen_at = now
        self.count = self.items = 0
        self.example = ""

    @property
    def due(self) -> float:
        return self.told_at + self.period

    def tell(self, now: float) -> None:
        """Log how many more there were."""
        seconds = max(1, round(min(now, self.seen_at + PERIOD) - self.told_at))
        logger.log(
            self.level,
            "%s ... %d more time%s in the last %s%s, such as %s",
            self.title,
            self.count,
            "" if self.count == 1 else "s",
            "second" if seconds == 1 else f"{seconds} seconds",
            f" ({self.items} items)" if self.items else "",
            self.example,
            count=self.count,
            items=self.items or None,
            **self.fields,
        )


class RepeatedFailures:
    """The failures of one queue that were logged lately."""

    __slots__ = ("_full_until", "_kinds", "_quiet_until", "owed_at")

    def __init__(self) -> None:
        self._kinds: dict[object, _Kind] | None = None
        # Until when none of MOST kinds may go, so that nobody has to look for one.
        self._full_until = LONG_AGO
        # Until when no more is told of many kinds: each in its own time would be a line
        # each.
        self._quiet_until = LONG_AGO
        # When a count is to be logged at the earliest; inf while there is none.
        self.owed_at = math.inf

    def error(
        self,
        message: str,
        *arguments: object,
        title: str,
        error: BaseException,
        **fields: Any,  # noqa: ANN401 - as `SafeLogger` takes them
    ) -> None:
        """Log a failure at ERROR with its traceback, or count it if it is no news.

        Args:
            message: The line to log for the first one, with `arguments`.
            arguments: As for `logging`.
            title: What failed; it stands in the line that counts the next ones.
            error: What was raised.
            fields: The line's, such as `items`, which are added up.
        """
        if self._is_news(logging.ERROR, title, error, fields):
            # The record names the line that called here.
            logger.error(message, *arguments, exc_info=error, stacklevel=2, **fields)

    def warning(
        self,
        message: str,
        *arguments: object,
        title: str,
        error: BaseException | str,
        period: float = PERIOD,
        **fields: Any,  # noqa: ANN401 - as for `error`
    ) -> None:
        """Do the same at WARNING and without a traceback: it may turn out well."""
        if isinstance(error, BaseException):
            fields["error_type"] = type(error).__qualname__
        if self._is_news(logging.WARNING, title, error, fields, period):
            logger.warning(message, *arguments, stacklevel=2, **fields)

    def _is_news(
        self,
        level: int,
        title: str,
        error: BaseException | str,
        fields: dict[str, Any],
        period: float = PERIOD,
    ) -> bool:
        """Whether it is to be logged in full; else it is counted."""
        now = asyncio.get_running_loop().time()
        self.tell(now)
        kinds = self._kinds = self._kinds or {}
        key = (title, *_likeness(error))
        kind = kinds.get(key)
        if kind is not None and now - kind.seen_at >= NEWS_AFTER:
            del kinds[key]
            kind = None
        if kind is None and self._has_room(kinds, now):
            kinds[key] = _Kind(title, level, period, now, _lasting(fields, error))
            return True
        if kind is None:
            others = f"other failures than the first {MOST} kinds"
            queue = {"queue": fields.get("queue")}
            rest = _Kind(others, logging.ERROR, PERIOD, now, queue)
            kind = kinds.setdefault(None, rest)
        self._count(kind, now, fields.get("items", 0), error)
        return False

    def tell(self, now: float) -> None:
        """Log the counts that are due by now; all of them if `now` is inf."""
        if now < self.owed_at:
            return
        # First: a user's log handler may fail, and count that, in the middle of this.
        self.owed_at = math.inf
        # A copy: at the program's end another thread's loop may still add to it.
        counted = [kind for kind in [*(self._kinds or {}).values()] if kind.count]
        due = [each for each in counted if each.due <= now]
        for kind in _in_few_lines(due):
            kind.tell(now)
        for kind in due:
            kind.count = kind.items = 0
            kind.told_at = kind.seen_at if math.isinf(now) else now
            if len(self._kinds or ()) > MOST_LINES:
                self._quiet_until = kind.told_at + PERIOD
        dues = [max(kind.due, self._quiet_until) for kind in counted if kind.count]
        self.owed_at = min([self.owed_at, *dues])

    def _count(
        self, kind: _Kind, now: float, items: int, error: BaseException | str
    ) -> None:
        kind.count += 1
        kind.items += items
        kind.seen_at = now
        if kind.count == 1:
            kind.example = error if isinstance(error, str) else reason(error)
        self.owed_at = min(self.owed_at, max(kind.due, self._quiet_until))
        self.tell(now)

    def _has_room(self, kinds: dict[object, _Kind], now: float) -> bool:
        if len(kinds) >= MOST:
            if now < self._full_until:
                return False
            for key, kind in list(kinds.items()):
                if not kind.count and now - kind.seen_at >= NEWS_AFTER:
                    del kinds[key]
            oldest = min((kind.seen_at for kind in kinds.values()), default=now)
            self._full_until = max(oldest + NEWS_AFTER, now + PERIOD)
        return len(kinds) < MOST


def _in_few_lines(kinds: list[_Kind]) -> list[_Kind]:
    """Return the most frequent ones, and all others as one."""
    if len(kinds) <= MOST_LINES:
        return kinds
    kinds = sorted(kinds, key=lambda kind: kind.count, reverse=True)
    first, *others = kinds[MOST_LINES - 1 :]
    queue = {"queue": first.fields.get("queue")}
    title, level = f"{first.title}, and {len(others)} other kinds", first.level
    rest = _Kind(title, level, PERIOD, first.told_at, queue)
    rest.example = first.example
    for kind in (first, *others):
        rest.count += kind.count
        rest.items += kind.items
        rest.level = max(rest.level, kind.level)
        rest.told_at = min(rest.told_at, kind.told_at)
        rest.seen_at = max(rest.seen_at, kind.seen_at)
    return [*kinds[: MOST_LINES - 1], rest]


def _lasting(fields: dict[str, Any], error: BaseException | str) -> dict[str, Any]:
    shared = {name: fields[name] for name in _SHARED if name in fields}
    if isinstance(error, BaseException):
        shared["error_type"] = type(error).__qualname__
    return shared


def _likeness(error: BaseException | str) -> tuple[object, ...]:
    """Return what equal failures have in common, beside what failed."""
    if isinstance(error, str):
        return ()
    kind = type(error)
    return (str(kind.__module__), kind.__qualname__, _origin(error))


def _origin(error: BaseException) -> tuple[str, int] | None:
    """Return the file and the line where it was raised, this time."""
    trace = first = traceback_of(error)
    if trace is None or first is None:
        return None
    # An error object that is raised again has its earlier tracebacks behind this one.
    while (
        trace.tb_next is not None
        and trace.tb_next.tb_frame.f_code is not first.tb_frame.f_code
    ):
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
