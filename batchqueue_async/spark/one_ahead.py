"""The next is made while the caller is busy with the one before."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

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

    def make(future: Future[tuple[T, ...]]) -> None:
        try:
            context.addJobTag(tag)
            # An empty tuple at the end.
            future.set_result((*islice(source, 1),))
        except BaseException as error:  # noqa: BLE001  # raised by who takes it
            future.set_exception(error)

    def begin() -> tuple[Future[tuple[T, ...]], InheritableThread]:
        future: Future[tuple[T, ...]] = Future()
        thread = InheritableThread(target=make, args=(future,))
        thread.start()
        return future, thread

    future, thread = begin()
    try:
        while found := future.result():
            future, thread = begin()
            yield found[0]
    finally:
        while thread.is_alive():
            # Again and again: its job may not have begun yet.
            context.cancelJobsWithTag(tag)
            thread.join(_AGAIN)
