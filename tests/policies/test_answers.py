"""What a handler says of a batch: checked where it is said."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import pytest

from batchqueue_async import PartialFailure, Retry, RetryAfter


class Position:
    """As numpy's integers are."""

    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize(
    "failed, positions",
    [([], ()), ({2}, (2,)), (iter([4, 1, 4]), (4, 1, 4)), ([Position()], (3,))],
)
def test_positions_are_those_given(
    failed: Iterable[int], positions: tuple[int, ...]
) -> None:
    """Whatever they are given in; a generator is gone through once."""
    assert PartialFailure(failed).failed == positions


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: PartialFailure([True, False]),
            TypeError,
            r"^failed must be positions in the batch, each an int, got True$",
        ),
        (
            lambda: PartialFailure(3),  # type: ignore[arg-type]
            TypeError,
            r"^failed must be positions in the batch, each an int, got 3$",
        ),
        (
            lambda: PartialFailure(["a"]),  # type: ignore[list-item]
            TypeError,
            r"^failed must be positions in the batch, each an int, got 'a'$",
        ),
        (
            lambda: PartialFailure([0], retry_after=-1),
            ValueError,
            r"^retry_after must be >= 0, got -1$",
        ),
        (
            lambda: RetryAfter(float("inf")),
            ValueError,
            r"^seconds must be finite, got inf$",
        ),
        (
            lambda: RetryAfter("30"),  # type: ignore[arg-type]
            TypeError,
            r"^seconds must be a number, got '30'$",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    """A mask of bools, above all, would pass for the positions 0 and 1."""
    with pytest.raises(error, match=message):
        make()


def test_they_say_what_is_the_matter() -> None:
    """In a log line, where nobody sees the items."""
    assert str(PartialFailure([7])) == "1 item failed, at 7"
    assert str(PartialFailure([1, 3])) == "2 items failed, at 1, 3"
    assert repr(PartialFailure(range(99))).endswith("8, 9, ...')")
    assert str(PartialFailure(range(1000))).endswith("8, 9, ...")
    assert str(PartialFailure([])) == "no item failed"
    assert str(RetryAfter(2)) == "to be tried again after 2 s"


def caused(error: Exception, cause: BaseException) -> Exception:
    """Return the error as `raise error from cause` makes it."""
    try:
        raise error from cause
    except type(error):
        return error


@pytest.mark.parametrize("error", [PartialFailure([7]), RetryAfter(2)])
def test_they_say_what_they_were_raised_from(error: Exception) -> None:
    """A log line that names positions alone says for a whole outage not why."""
    before = str(error)
    caused(error, ConnectionError("no route to db://shop:secret@server"))
    assert str(error).startswith(f"{before}, since ConnectionError('no route to db")
    assert "secret" not in str(error)


def test_a_cause_that_leads_to_itself_is_bounded() -> None:
    circle = PartialFailure([7])
    circle.__cause__ = PartialFailure([8])
    circle.__cause__.__cause__ = circle
    assert len(str(circle)) < 300


def test_they_survive_pickling() -> None:
    """A handler may run in another process."""
    partly = pickle.loads(pickle.dumps(PartialFailure([1], retry_after=2.5)))
    assert (partly.failed, partly.retry_after) == ((1,), 2.5)
    known = pickle.loads(pickle.dumps(PartialFailure([1], results=["a", None])))
    assert known.results == ["a", None]
    assert pickle.loads(pickle.dumps(RetryAfter(30))).seconds == 30


class Database(Exception): ...


class Operational(Database): ...


class Integrity(Database): ...


RETRY, SPLIT, FAIL, BOTH = (True, False), (False, True), (False, False), (True, True)


@pytest.mark.parametrize(
    "retry, error, answer",
    [
        (Retry(split_on=(Integrity,)), Integrity(), SPLIT),
        (Retry(split_on=(Integrity,)), Operational(), RETRY),
        (Retry(split_on=(Database,), retry_on=(Operational,)), Operational(), BOTH),
        (Retry(split_on=(Database,), retry_on=(Operational,)), Integrity(), SPLIT),
        (Retry(split_on=(Integrity,), retry_on=(Integrity,)), Integrity(), BOTH),
        (Retry(split_on=(Integrity,), retry_on=(OSError,)), KeyError(), FAIL),
        (Retry(split=True, retry_on=(OSError,)), OSError(), BOTH),
        (Retry(split=True, retry_on=(OSError,)), KeyError(), FAIL),
        (Retry(split=True, retry_on=()), RetryAfter(1), RETRY),
        (Retry(split=True, retry_on=()), PartialFailure([0]), RETRY),
        (Retry(split_on=(Exception,)), PartialFailure([0]), RETRY),
    ],
)
def test_the_class_that_is_nearer_to_the_error_counts(
    retry: Retry, error: Exception, answer: tuple[bool, bool]
) -> None:
    """Answers of a handler are retried whatever is named, and never split."""
    assert (retry.retries(error), retry.splits(error)) == answer


def test_what_to_split_on_is_checked() -> None:
    """As `retry_on` is."""
    message = r"^split_on must be a tuple of Exception classes, got .*OSError"
    with pytest.raises(TypeError, match=message):
        Retry(split_on=OSError)  # type: ignore[arg-type]
