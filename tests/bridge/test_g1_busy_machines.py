"""G1: silence counts in seconds that the machine was free to answer, not in all."""

from collections.abc import Callable

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async._threads import dead_loop_watchdog

PATIENCE = 0.5
LONG = 100.0


class Machine:
    """Has one loop, and the clocks that say how busy it is; stands in for `time`."""

    def __init__(
        self, *, late: float, share: float, is_run: bool = True, others: float = 0.0
    ) -> None:
        self._late = late
        self._share = share
        # What the process's other threads have of a processor.
        self._others = others
        self._is_run = is_run
        self._now = 0.0
        self._used = 0.0
        self.answer: Callable[[], object] = lambda: None

    def nap(self, seconds: float) -> None:
        """Let a thread nap, which comes back late; the loop's works meanwhile."""
        took = seconds + self._late
        self._now += took
        self._used += self._share * took

    def monotonic(self) -> float:
        return self._now

    def clock_gettime(self, _: int) -> float:
        return self._used

    def process_time(self) -> float:
        return self._used + self._others * self._now

    def pthread_getcpuclockid(self, _: int) -> int:
        return 1

    def is_running(self) -> bool:
        return self._is_run

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, answer: Callable[[], object]) -> None:
        self.answer = answer


def seconds_until_dead(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, *, answers_after: float = LONG
) -> float:
    """Have a thread wait for the loop, which answers at first, and then so often."""
    monkeypatch.setattr(dead_loop_watchdog, "time", machine)
    monkeypatch.setattr(dead_loop_watchdog, "monotonic", machine.monotonic)
    waiting = dead_loop_watchdog.LoopWatchdog(machine, "it", BatchQueueError, PATIENCE)  # type: ignore[arg-type]
    waiting.wait(machine.nap, None)
    machine.answer()
    began = answered = machine.monotonic()
    try:
        while machine.monotonic() < began + LONG:
            waiting.wait(machine.nap, None)
            if machine.monotonic() > answered + answers_after:
                machine.answer()
                answered = machine.monotonic()
    except BatchQueueError:
        pass
    return machine.monotonic() - began


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["waits", "computes"])
def test_on_a_free_machine_a_handler_that_blocks_the_loop_is_noticed_in_time(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(late=0.0, share=share)
    assert PATIENCE <= seconds_until_dead(machine, monkeypatch) < 2 * PATIENCE


def test_so_is_one_that_computes_before_the_loop_has_ever_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(late=0.0, share=1.0)
    monkeypatch.setattr(dead_loop_watchdog, "time", machine)
    monkeypatch.setattr(dead_loop_watchdog, "monotonic", machine.monotonic)
    waiting = dead_loop_watchdog.LoopWatchdog(machine, "it", BatchQueueError, PATIENCE)  # type: ignore[arg-type]

    def wait() -> None:
        while machine.monotonic() < 2 * PATIENCE:
            waiting.wait(machine.nap, None)

    with pytest.raises(BatchQueueError):
        wait()


@pytest.mark.parametrize(
    "late, share, others",
    [(0.3, 0.0, 0.0), (0.3, 0.05, 0.0), (0.0, 0.1, 0.0), (0.05, 0.0, 1.0)],
    ids=["naps are late", "and the loop has little", "the loop has little", "the lock"],
)
def test_a_busy_machine_is_not_a_dead_loop(
    late: float, share: float, others: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where those who only nap come late, or the loop is at work beside others.

    Or where others compute, and so have the interpreter's lock.
    """
    machine = Machine(late=late, share=share, others=others)
    assert 3 * PATIENCE < seconds_until_dead(machine, monkeypatch) < LONG


def test_many_threads_that_begin_to_wait_are_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their looks follow each other at once: none counts more than the time it is for.

    While they come they compute, so that each finds others at work.
    """
    machine = Machine(late=0.0, share=0.0, others=1.0)
    monkeypatch.setattr(dead_loop_watchdog, "time", machine)
    monkeypatch.setattr(dead_loop_watchdog, "monotonic", machine.monotonic)
    threads = [
        dead_loop_watchdog.LoopWatchdog(machine, "it", BatchQueueError, PATIENCE)  # type: ignore[arg-type]
        for _ in range(300)
    ]
    threads[0].wait(machine.nap, None)
    machine.answer()
    for each in threads[1:]:
        each.wait(lambda _: machine.nap(PATIENCE / 10_000), None)
    assert machine.monotonic() < PATIENCE
    threads[0].wait(machine.nap, None)


def test_a_loop_that_nobody_runs_has_no_such_excuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each nap counts in full, however late it comes."""
    busy = Machine(late=0.3, share=0.0)
    stopped = Machine(late=0.3, share=0.0, is_run=False)
    excused = seconds_until_dead(busy, monkeypatch)
    assert seconds_until_dead(stopped, monkeypatch) < excused / 3


def test_a_loop_that_answers_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(late=0.0, share=1.0)
    slow = seconds_until_dead(machine, monkeypatch, answers_after=0.25)
    assert slow >= LONG
