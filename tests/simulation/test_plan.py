"""`plan`: the first setting, from cheap to dear, that holds."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, round_robin
from batchqueue_async._command import main
from batchqueue_async.simulation import Level, plan

CONFIG = BatchQueueConfig[object](consumer=lambda _: None, selector=round_robin)


def load() -> list[tuple[float, object]]:
    return [(place * 0.01, "x") for place in range(500)]


def cost(batch: list[object]) -> float:
    return 0.1 + 0.01 * len(batch)


def test_it_ends_at_the_first_that_holds() -> None:
    level = Level(p99=0.3)
    found = plan(CONFIG, load, cost, level)
    best = found.best
    assert best is found.trials[-1]
    assert best.simulation.p99 <= 0.3
    for trial in found.trials[:-1]:
        assert trial.misses
        assert "p99" in trial.misses[0]


def test_none_may_hold() -> None:
    candidates = [CONFIG]
    found = plan(CONFIG, load, cost, Level(p99=0.001), candidates=candidates)
    assert found.best is None
    assert len(found.trials) == 1


def test_losses_and_memory_count() -> None:
    def failing(_: list[object]) -> float:
        raise OSError

    lossy = plan(CONFIG, load, failing, Level(), candidates=[CONFIG])
    assert lossy.trials[0].misses == ["500 items lost"]
    allowed = plan(CONFIG, load, failing, Level(may_lose=True), candidates=[CONFIG])
    assert allowed.best is not None
    small = plan(CONFIG, load, cost, Level(waiting=5), candidates=[CONFIG])
    assert "waiting" in small.trials[0].misses[0]


def test_bad_levels_and_no_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="p99 must be >= 0"):
        Level(p99=-1)
    with pytest.raises(ValueError, match="waiting must be >= 1"):
        Level(waiting=0)
    with pytest.raises(ValueError, match="candidates must be at least one"):
        plan(CONFIG, load, cost, Level(), candidates=[])


def test_the_command_prints_code(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "plan --rate 50 --seconds 5 --burst 100 --call 0.01 --p99 1"
    assert main([*arguments.split(), "--memory", "1MiB"]) == 0
    said = capsys.readouterr().out
    assert "holds" in said
    code = said[said.index("BatchQueueConfig(") :]
    assert "max_batch=50" in code
    compile(code, "plan", "eval")


def test_it_rides_an_outage_out(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "plan --rate 50 --seconds 6 --outage 1 --call 0.01 --p99 3"
    assert main(arguments.split()) == 0
    assert "holds" in capsys.readouterr().out


def test_it_says_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Retries wait at random: a setting held at one run, and not at the next."""
    arguments = "plan --rate 50 --seconds 6 --outage 1 --call 0.01 --p99 3"
    said = set()
    for _ in range(3):
        main(arguments.split())
        said.add(capsys.readouterr().out)
    assert len(said) == 1


def test_a_recorded_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tmp_path / "load.csv"
    recorded.write_text("".join(f"{1_700_000_000 + n * 0.1}\n" for n in range(50)))
    arguments = ["plan", "--load", str(recorded), "--call", "0.01", "--p99", "0.1"]
    assert main(arguments) == 0
    as_numbers = capsys.readouterr().out
    times = (f"2026-11-22T23:00:{n * 0.1:09.6f}+00:00\n" for n in range(50))
    recorded.write_text("".join(times))
    assert main(arguments) == 0
    assert capsys.readouterr().out == as_numbers


@pytest.mark.parametrize(
    "content, says",
    [
        ("yesterday\n", "Invalid isoformat string: 'yesterday'"),
        ("", "load.csv is empty"),
        ("\n\n", "load.csv is empty"),
        ("1\nnan\n", "a finite number, got 'nan'"),
        (
            "1\n2026-11-22T23:00:00\n",
            "got '1' (seconds) and '2026-11-22T23:00:00' (a time without its zone)",
        ),
        (
            "2026-11-22T23:00:00+00:00\n2026-11-22T23:00:01\n",
            "all of one kind, got '2026-11-22T23:00:00+00:00' (a time with its zone)",
        ),
    ],
    ids=["no time", "empty", "empty lines", "not finite", "mixed", "zones"],
)
def test_a_load_that_says_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    recorded = tmp_path / "load.csv"
    recorded.write_text(content)
    assert main(["plan", "--load", str(recorded), "--call", "0.01"]) == 1
    told = capsys.readouterr().err
    assert "--load must name a file with seconds, or an ISO time, per line: " in told
    assert says in told


def test_a_burst_may_take_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "plan --rate 10 --seconds 30 --burst 2000 --call 0.01 --p99 1"
    assert main(arguments.split()) == 0
    at_once = capsys.readouterr().out.splitlines()[1]
    assert main([*arguments.split(), "--burst-seconds", "10"]) == 0
    spread = capsys.readouterr().out.splitlines()[1]
    # The columns are drain tasks, linger, max_batch, p50, p99, waiting.
    assert int(at_once.split()[5].replace(",", "")) > 1_500
    assert int(spread.split()[5].replace(",", "")) < 20


def test_measured_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = tmp_path / "calls.csv"
    measured.write_text("1,0.2\n50,0.2\n1,0.3\n50,0.4\n")
    arguments = ["plan", "--rate", "5", "--seconds", "20", "--p99", "1"]
    assert main([*arguments, "--calls", str(measured)]) == 0
    p50 = float(capsys.readouterr().out.splitlines()[1].split()[3])
    assert 0.2 < p50 < 0.7
    measured.write_text("1\n")
    assert main([*arguments, "--calls", str(measured)]) == 1
    assert "--calls must name a file of items,seconds" in capsys.readouterr().err


def test_a_plan_needs_to_know_what_a_call_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--rate", "5"]) == 1
    assert "either --call (and --item), or --calls FILE" in capsys.readouterr().err


def test_nothing_that_holds_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    # More than 32 connections can do.
    arguments = "plan --rate 400 --seconds 0.5 --call 0 --item 0.2 --p99 0.3"
    assert main(arguments.split()) == 1
    said = capsys.readouterr().out
    assert "none of these holds it" in said
    assert said.count("p99 ") > 50


def test_a_call_that_takes_too_long_alone_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = "plan --rate 5 --seconds 2 --call 0.5 --p99 0.1"
    assert main(arguments.split()) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "no setting can: a call for one item takes 0.5 s"
    assert len(said) == 3


OUTAGE = "plan --rate 20 --outage 20 --call 0.01 --p99 2"


def test_an_outage_that_no_setting_can_hide_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(OUTAGE.split()) == 1
    said = capsys.readouterr().out
    assert "no setting can: with a sink that is away for 20 s" in said
    assert "--outage-every 86400 for once a day" in said
    assert said.count("\n") == 4


def test_the_p99_is_of_the_time_between_two_outages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*OUTAGE.split(), "--outage-every", "86400"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert float(row[4]) < 0.1
    # What waits is that of the outage.
    assert int(row[5]) > 300
    # Every ten minutes is too often.
    assert main([*OUTAGE.split(), "--outage-every", "600"]) == 1


def test_producers_that_waited_for_room_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = "plan --rate 10 --seconds 3 --burst 100 --call 0.01 --item-bytes 1KiB"
    assert main([*arguments.split(), "--memory", "20KiB", "--may-lose"]) == 1
    assert main([*arguments.split(), "--burst", "25000"]) == 0
    assert "more waited for room" in capsys.readouterr().out


def test_a_call_takes_no_more_than_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "plan --rate 400 --seconds 0.5 --call 0 --item 0.2 --p99 0.3"
    assert main([*arguments.split(), "--max-batch", "100"]) == 1
    rows = capsys.readouterr().out.splitlines()[1:-1]
    assert {row.split()[2] for row in rows} == {"50", "100"}
    with pytest.raises(SystemExit):
        main([*arguments.split(), "--max-batch", "0"])


def test_a_burst_of_fewer_than_no_items_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--call", "0.01", "--seconds", "1", "--burst", "-5"])
    assert "must be a whole number >= 0, got '-5'" in capsys.readouterr().err


def test_seconds_with_a_unit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--call", "20ms"])
    assert "must be a number >= 0, got '20ms'" in capsys.readouterr().err


def test_bytes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--call", "1", "--memory", "much"])
    assert "must be a number of bytes above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "calls, told",
    [
        ("", "{file} is empty"),
        ("5,-0.1", "seconds must be >= 0, got -0.1"),
        ("5,nan", "seconds must be finite, got nan"),
        ("1.5,0.1", "size must be a whole number, got 1.5"),
        ("nan,0.1", "size must be a whole number, got nan"),
        ("items,seconds", "could not convert string to float: 'items'"),
    ],
)
def test_calls_that_are_none_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: str, told: str
) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(calls, "utf-8")
    assert main(["plan", "--calls", str(file)]) == 1
    rule = "--calls must name a file of items,seconds per line"
    assert capsys.readouterr().err == f"{rule}: {told.format(file=file)}\n"


def test_a_load_that_would_take_hours_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--call", "1", "--rate", "1e9"]) == 1
    assert capsys.readouterr().err == (
        "--rate times --seconds, and --burst, must be 20,000,000 items at most, "
        "got 6e+10 in 60 s; --seconds may be less\n"
    )


def test_memory_without_room_for_one_item_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As by who means megabytes."""
    assert main(["plan", "--call", "1", "--memory", "512"]) == 1
    assert capsys.readouterr().err == (
        "--memory must have room for one item of 1000 bytes (--item-bytes), "
        "got 512 bytes\n"
    )


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "planning.md"
    for status, part in enumerate(guide.read_text("utf-8").split("$ batchqueue ")[1:]):
        shown = part.partition("```")[0]
        command, _, printed = shown.replace("\\\n", "").partition("\n")
        assert main(command.split()) == status
        assert capsys.readouterr().out.split() == printed.split()


def test_a_plan_that_could_not_be_made_is_refused() -> None:
    made: Any = partial(plan, handler_cost=cost)
    with pytest.raises(TypeError, match="level must be a Level, as in"):
        made(CONFIG, load, level=5.0)
    with pytest.raises(TypeError, match="arrivals must be callable with no argument"):
        made(CONFIG, load(), level=Level())
    with pytest.raises(TypeError, match="candidates must be an iterable"):
        made(CONFIG, load, level=Level(), candidates=CONFIG)


@pytest.mark.parametrize("wrong", [None, 5, "config", BatchQueueConfig])
def test_a_plan_needs_a_config(wrong: Any) -> None:  # noqa: ANN401 - whatever it is
    with pytest.raises(TypeError, match=r"^config must be a BatchQueueConfig, got "):
        plan(wrong, list, lambda _: 0.1, Level())


@pytest.mark.parametrize("wrong", ["false", None, 0])
def test_whether_items_may_be_lost_is_said(wrong: Any) -> None:  # noqa: ANN401
    """The text "false" is true, with which any plan held."""
    with pytest.raises(TypeError, match=r"^may_lose must be True or False, got "):
        Level(may_lose=wrong)
