"""The oracle finds what it is there for."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.spark.chaos.checkpoint import ROWS_PER_SECOND, Checkpoint, name_of
from tests.spark.chaos.oracle import Finding, compare

ROWS = ROWS_PER_SECOND
"""Of each batch."""


@pytest.fixture
def rate(tmp_path: Path) -> Checkpoint:
    """Three batches of a second each; Spark has committed the first two."""
    write_log(tmp_path, "offsets", {0: "1", 1: "2", 2: "3"})
    write_log(tmp_path, "commits", {0: "{}", 1: "{}"})
    return Checkpoint(tmp_path, "rate")


def write_log(folder: Path, log: str, lines: dict[int, str]) -> None:
    (folder / log).mkdir(parents=True)
    for number, line in lines.items():
        (folder / log / str(number)).write_text(f"v1\n{{}}\n{line}")


def found(checkpoint: Checkpoint, ids: Iterable[int]) -> Finding:
    return compare(checkpoint, checkpoint.committed(), list(ids))


@pytest.mark.parametrize("batches", [2, 3])
def test_whole_batches_are_clean(rate: Checkpoint, batches: int) -> None:
    finding = found(rate, range(batches * ROWS))
    assert finding.is_clean
    assert finding.rows == batches * ROWS


def test_a_committed_batch_that_does_not_show_is_lost(rate: Checkpoint) -> None:
    assert found(rate, range(ROWS)).lost == ROWS


def test_a_part_of_a_batch_that_is_not_committed_is_a_loss(rate: Checkpoint) -> None:
    assert found(rate, range(2 * ROWS + 1)).lost == ROWS - 1


def test_what_is_there_twice_is_doubled(rate: Checkpoint) -> None:
    finding = found(rate, [*range(2 * ROWS), 7, 7])
    assert (finding.lost, finding.doubled) == (0, 2)
    assert not finding.is_clean


def test_what_no_batch_holds_is_foreign(rate: Checkpoint) -> None:
    assert found(rate, [*range(2 * ROWS), -1]).foreign == 1


def test_files_are_known_by_their_names(tmp_path: Path) -> None:
    write_log(tmp_path, "offsets", {0: '{"logOffset":0}', 1: '{"logOffset":2}'})
    write_log(tmp_path, "commits", {0: "{}"})
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)
    entries = [
        json.dumps({"path": f"file:///x/{name_of(first, first + 10)}", "batchId": n})
        for n, first in enumerate((0, 10, 20, 30))
    ]
    (log / "2.compact").write_text("\n".join(["v1", *entries[:3]]))
    (log / "3").write_text(f"v1\n{entries[3]}")
    checkpoint = Checkpoint(tmp_path, "files")
    assert checkpoint.ids(0) == set(range(10))
    assert checkpoint.ids(1) == set(range(30))
    assert found(checkpoint, range(30)).is_clean
    assert found(checkpoint, range(20)).lost == 10
