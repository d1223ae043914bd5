"""The budget of the hot paths: what fails, who is blamed, and what counting sees."""

from pathlib import Path

from batchqueue_async import BatchQueueConfig
from benchmarks.budget import REST, Cost, compared, cost_of, diff, load, record
from benchmarks.opcodes import Instructions

RECORDED = {"produce": Cost("item", 20.0, {"queue.py put": 15.0, "queue.py end": 5.0})}


def measured(put: float, end: float = 5.0, **more: float) -> dict[str, Cost]:
    lines = {"queue.py put": put, "queue.py end": end, **more}
    return {"produce": Cost("item", sum(lines.values()), lines)}


def test_ten_percent_more_is_allowed_and_a_little_beyond_is_not() -> None:
    (within,) = compared(RECORDED, measured(put=17.0))
    (beyond,) = compared(RECORDED, measured(put=17.1))

    assert not within.is_too_dear
    assert beyond.is_too_dear


def test_the_line_that_grew_most_is_blamed_first() -> None:
    (change,) = compared(RECORDED, measured(put=16.0, end=4.0, new=9.0))

    assert change.blamed() == [("new", 0.0, 9.0), ("queue.py put", 15.0, 16.0)]


def test_the_diff_names_the_path_its_change_and_the_line() -> None:
    text = diff(compared(RECORDED, measured(put=25.0)))

    assert "produce, per item" in text
    assert "+50.0%  TOO DEAR" in text
    assert "15.00 ->      25.00  queue.py put" in text


def test_what_got_cheaper_or_is_new_or_gone_does_not_fail() -> None:
    new = {"flush": Cost("call", 3.0, {})}

    cheaper, added = compared(RECORDED, {**measured(put=1.0), **new})
    (gone,) = compared(RECORDED, {})

    assert not cheaper.is_too_dear
    assert (added.ratio, added.is_too_dear) == (None, False)
    assert (gone.ratio, gone.is_too_dear) == (None, False)
    assert "none" in diff([cheaper, added, gone])


def test_costs_are_per_unit_and_small_lines_are_put_together() -> None:
    cost = cost_of("item", 10, {"hot": 990, "a": 5, "b": 5})

    assert cost == Cost("item", 100.0, {"hot": 99.0, REST: 1.0})


def test_each_version_of_python_keeps_its_own_budget(tmp_path: Path) -> None:
    file = tmp_path / "budget.json"
    other = {"produce": Cost("item", 7.0, {"queue.py put": 7.0})}

    record(file, "3.11", RECORDED)
    record(file, "3.12", other)

    assert load(file, "3.11") == RECORDED
    assert load(file, "3.12") == other
    assert load(file, "3.13") == {}


def test_counting_sees_the_package_and_what_it_calls_but_not_its_caller() -> None:
    def build() -> int:
        BatchQueueConfig[int](buffer_size=7)
        return sum(range(100))

    build()  # The caches of `isinstance` are filled.
    counts = []
    for _ in range(2):
        instructions = Instructions()
        with instructions.counted():
            build()
        counts.append(instructions.by_line())

    assert counts[0] == counts[1]
    assert any("BatchQueueConfig.__post_init__" in line for line in counts[0])
    assert not any("build" in line for line in counts[0])
