"""What errors say, and that they can be told apart and sent on."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from batchqueue_async._policies.errors import (
    BatchQueueError,
    ConfigConflict,
    DeliveryError,
    DuplicateQueue,
    Failure,
    InvalidSelection,
    WouldDeadlock,
    with_accepted,
)


@pytest.mark.parametrize(
    "kind",
    [WouldDeadlock, DuplicateQueue, ConfigConflict, InvalidSelection, DeliveryError],
)
def test_every_error_is_a_batch_queue_error(kind: type[Exception]) -> None:
    """One `except BatchQueueError` catches all that the library raises itself."""
    assert issubclass(kind, BatchQueueError)


def test_an_invalid_selection_is_a_value_error() -> None:
    """Who expects a ValueError for an index out of range gets one."""
    assert issubclass(InvalidSelection, ValueError)


def test_a_delivery_error_says_how_many_where_and_what_first() -> None:
    """The message has the count, the queue and the first failure."""
    failures = (
        Failure("row 1", ValueError("no"), "failed"),
        Failure("row 2", None, "dropped"),
    )
    error = DeliveryError("audit", 250, failures)
    assert (error.queue_name, error.count, error.failures) == ("audit", 250, failures)
    expected = "250 failures in queue 'audit'; first: failed a str (ValueError('no'))"
    assert str(error) == expected


@pytest.mark.parametrize(
    "failure, text",
    [
        (Failure(None, OSError("gone"), "on_flush"), "on_flush (OSError('gone'))"),
        (Failure(None, None, "dropped"), "dropped None"),
        (
            Failure(7, None, "returned"),
            "returned an int (left at a deadline or loop's end)",
        ),
        (Failure(7, None, "unhandled"), "unhandled an int"),
    ],
)
def test_a_failure_reads_as_outcome_item_and_error(failure: Failure, text: str) -> None:
    """Only an `on_flush` failure has no item; a dropped None is one."""
    assert str(failure) == text


def test_a_single_failure_is_counted_in_the_singular() -> None:
    """One failure, with or without its details."""
    assert str(DeliveryError("q", 1, ())) == "1 failure in queue 'q'"


def test_a_delivery_error_survives_pickling() -> None:
    """An error that crosses processes keeps its account."""
    error = DeliveryError("q", 2, (Failure("a", None, "returned"),))
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.queue_name, copy.count, copy.failures) == ("q", 2, error.failures)
    assert str(copy) == str(error)


def test_a_long_or_broken_item_does_not_break_the_message() -> None:
    """The first failure is shown bounded, even if its item has no usable repr."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    long = DeliveryError("q", 1, (Failure("x" * 10_000, None, "returned"),))
    broken = DeliveryError("q", 1, (Failure(Broken(), None, "returned"),))
    assert len(str(long)) < 300
    assert "Broken" in str(broken)


class Slotted(ValueError):
    __slots__ = ("accepted",)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Closed(ValueError):
    @property
    def accepted(self) -> int:
        return -1


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), Slotted("x"), Frozen(3)]
)
def test_any_error_can_carry_how_many_were_accepted(error: BaseException) -> None:
    """Also of classes that refuse to be changed; a number of another call goes."""
    with_accepted(error, 7)
    with_accepted(error, 5)
    assert error.accepted == 5  # type: ignore[attr-defined]


def test_a_class_that_cannot_carry_the_number_gets_a_note() -> None:
    """Nothing is raised in place of the error."""
    error = Closed("x")
    with_accepted(error, 5)
    assert error.__notes__ == ["accepted: 5"]
