"""The public names of the ring: all of them, each explained."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from batchqueue_async import ring

PROMISED = {
    "BlockingWait",
    "BusySpinWait",
    "Disruptor",
    "InsufficientCapacity",
    "MultiProducerSequencer",
    "ProducerType",
    "RingBuffer",
    "RingError",
    "RingHalted",
    "Sequence",
    "SequenceBarrier",
    "SingleProducerSequencer",
    "SleepingWait",
    "SyncRing",
    "TimeoutBlockingWait",
    "WorkerPool",
    "YieldingWait",
}


def test_names_are_all_there_once_and_sorted() -> None:
    assert set(ring.__all__) >= PROMISED
    assert sorted(ring.__all__) == sorted(set(ring.__all__))
    public = {
        name
        for name, value in vars(ring).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(ring.__all__)


@pytest.mark.parametrize("name", [n for n in ring.__all__ if n != "ExceptionHandler"])
def test_every_name_and_method_has_a_docstring(name: str) -> None:
    value = getattr(ring, name)
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}("), "not the one a dataclass makes up"
    if inspect.isclass(value):
        for member, attribute in vars(value).items():
            if not member.startswith("_") and inspect.isroutine(attribute):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"


def test_errors_share_a_base() -> None:
    for error in (ring.InsufficientCapacity, ring.RingHalted, ring.InvalidArgument):
        assert issubclass(error, ring.RingError)
    assert issubclass(ring.InvalidArgument, ValueError)


def test_importing_it_needs_no_extra() -> None:
    code = (
        "import sys; import batchqueue_async.ring; "
        "extras = {'uvloop', 'pyspark', 'pandas', 'rich'}; "
        "print(*sorted(extras & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
