"""`plan`: the first setting, from cheap to dear, that holds."""

from pathlib import Path

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


def test_a_recorded_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tmp_path / "load.csv"
    recorded.write_text("".join(f"{1_700_000_000 + n * 0.1}\n" for n in range(50)))
    arguments = ["plan", "--load", str(recorded), "--call", "0.01", "--p99", "0.1"]
    assert main(arguments) == 0
    recorded.write_text("yesterday\n")
    assert main(arguments) == 1
    assert "--load must name a file with a number per line" in capsys.readouterr().err


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
    arguments = "plan --rate 5 --seconds 2 --call 0.5 --p99 0.1"
    assert main(arguments.split()) == 1
    assert "none of these holds it" in capsys.readouterr().out


def test_bytes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--call", "1", "--memory", "much"])
    assert "must be a number of bytes above 0" in capsys.readouterr().err


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "planning.md"
    shown = guide.read_text("utf-8").partition("$ batchqueue ")[2].partition("```")[0]
    command, _, printed = shown.replace("\\\n", "").partition("\n")
    assert main(command.split()) == 0
    assert capsys.readouterr().out.strip() == printed.strip()
