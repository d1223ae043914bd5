"""The next is made while the caller is busy with the one before."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark import InheritableThread

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
# Seconds until a job that goes on is cancelled once more.
_AGAIN = 0.1


def one_ahead(context: SparkContext, made: Iterable[T]) -> Generator[T, None, None]:
    """Yield what an iterable makes with Spark jobs, the next of which runs meanwhile.

    The jobs run on threads that have the caller's group of jobs, and its other
    properties. Who closes the iterator cancels the one that runs.
    """
    source, tag = iter(made), f"batchqueue-{uuid.uuid4().hex}"
    with closing(_Ahead(context, source, tag)) as ahead:
        while found := ahead.take():
            yield found[0]


class _Ahead(Generic[T]):
    def __init__(self, context: SparkContext, source: Iterator[T], tag: str) -> None:
        self._context = context
        self._source = source
        self._tag = tag
        self._start()

    def take(self) -> tuple[T, ...]:
        """Return the next, as a tuple; an empty one at the end."""
        found = self._next.result()
        if found:
            self._start()
        return found

    def close(self) -> None:
        """Cancel what runs, and wait for its end."""
        while self._thread.is_alive():
            # Again and again: its job may not have begun yet.
            self._context.cancelJobsWithTag(self._tag)
            self._thread.join(_AGAIN)

    def _start(self) -> None:
        self._next: Future[tuple[T, ...]] = Future()
        self._thread = InheritableThread(target=self._make, args=(self._next,))
        self._thread.start()

    def _make(self, future: Future[tuple[T, ...]]) -> None:
        try:
            self._context.addJobTag(self._tag)
            future.set_result((*islice(self._source, 1),))
        except BaseException as error:  # noqa: BLE001  # raised by who takes it
            future.set_exception(error)
