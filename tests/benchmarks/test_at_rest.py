"""What the README says of an idle queue's memory; its processor time is measured."""

import sys

import pytest

from benchmarks.at_rest import idle_table
from benchmarks.scale import Scale


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="objects have other sizes in CPython 3.14"
)
def test_an_idle_queue_takes_eight_kilobytes() -> None:
    table = idle_table(Scale(is_quick=True))
    assert table.value("1,000", "bytes each") <= 8192
