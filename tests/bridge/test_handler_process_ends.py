"""What signals to a whole program, and its end, do to processes of `in_process`."""

import signal
from pathlib import Path

import pytest

from tests.bridge.programs import PREFACE, Program, each_python

# Sent by a terminal, a service manager or a shell to each process of a program.
HANDLERS = """
import multiprocessing

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

def signal_myself():
    for each in SIGNALS:
        os.kill(os.getpid(), each)

def say(batch):
    # In one call: several processes write.
    os.write(1, f"{os.getpid()} {batch}\\n".encode())

def be_signalled(batch):
    signal_myself()
    time.sleep(0.01)
    say(batch)

def be_slow(batch):
    say("begun")
    open(sys.argv[1], "w").close()
    time.sleep(0.2)
    say(batch)

def outlive(batch):
    os.kill(os.getpid(), signal.SIGTERM)
    say("begun")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)

def run(handler, **settings):
    config = BatchQueueConfig(consumer=in_process(handler), max_batch=1, **settings)
    thread = LoopThread().start()
    queue = thread.open("q", config)
    queue.produce_many([1, 2])
    return queue
"""

ON_LOOP = """
async def main():
    queue = BatchQueue("q", BatchQueueConfig(consumer=in_process(say)))
    await queue.start()
    await queue.produce(1)
    await queue.flush()
    is_idle.set()
    await asyncio.sleep(3600)
"""


def program(folder: Path, text: str) -> Path:
    file = folder / "program.py"
    file.write_text(PREFACE + HANDLERS + text)
    return file


def batches(output: str) -> list[str]:
    return [each.partition(" ")[2] for each in output.splitlines()]


@each_python
def test_the_programs_signals_do_not_end_them(python: Path, tmp_path: Path) -> None:
    """Neither while they start, and import the program, nor in a call."""
    text = """
if __name__ == "__main__":
    run(be_signalled)
else:
    signal_myself()
"""
    ended = Program(program(tmp_path, text), python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert batches(ended.output) == ["[1]", "[2]"]


def test_what_they_run_can_be_ended_by_such_a_signal(tmp_path: Path) -> None:
    text = """
import subprocess

def end_another(batch):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    other.terminate()
    say(other.wait())

if __name__ == "__main__":
    run(end_another)
"""
    ended = Program(program(tmp_path, text)).end()
    assert (ended.status, ended.log) == (0, "")
    assert batches(ended.output) == [str(-signal.SIGTERM)] * 2


def test_after_such_a_signal_they_end_with_the_program(tmp_path: Path) -> None:
    text = """
if __name__ == "__main__":
    run(outlive)
    time.sleep(3600)
"""
    # What it writes ends with the last process that could.
    ended = Program(program(tmp_path, text)).end()
    assert (ended.status, batches(ended.output)) == (-signal.SIGKILL, ["begun"])


@each_python
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_of_multiprocessing_drains_before_they_are_ended(
    method: str, python: Path, tmp_path: Path
) -> None:
    text = f"""
def child():
    run(be_slow)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.001)

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
    begun = str(tmp_path / "begun")
    ended = Program(program(tmp_path, text), begun, python=python).end()
    assert (ended.status, ended.log) == (0, "")
    assert batches(ended.output) == ["begun", "[1]", "begun", "[2]"]


@each_python
def test_the_interpreters_exit_ends_those_of_a_loop_that_still_runs(
    python: Path, tmp_path: Path
) -> None:
    text = (
        ON_LOOP
        + """
if __name__ == "__main__":
    is_idle = threading.Event()
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    is_idle.wait()
"""
    )
    ended = Program(program(tmp_path, text), python=python).end()
    assert (ended.status, batches(ended.output)) == (0, ["[1]"])


def test_what_is_of_no_file_is_refused_at_once() -> None:
    """As in an interactive session, whose functions no process can import."""
    text = HANDLERS + "in_process(say)"
    ended = Program(text).end()
    assert ended.status == 1
    assert ended.log.endswith(
        "TypeError: handler must be of a module or a program's file to run in a "
        "process, which imports it, got the function say of a session, or of a "
        "package's __main__.py\n"
    )


@pytest.mark.parametrize("place", ["package", "folder"])
def test_what_is_of_a_main_that_no_process_imports_is_refused_at_once(
    place: str, tmp_path: Path
) -> None:
    """As in `python -m package`, by its `__main__.py`: each batch would fail."""
    path = tmp_path / "package"
    path.mkdir()
    (path / "__main__.py").write_text(PREFACE + HANDLERS + "in_process(say)")
    how = ["-m", "package"] if place == "package" else ["package"]
    text = (
        f"os.chdir({str(tmp_path)!r})\n"
        f"os.execv(sys.executable, [sys.executable, *{how!r}])"
    )
    ended = Program(text).end()
    assert ended.status == 1
    assert "TypeError: handler must be of a module or a program's file" in ended.log


def test_a_forked_child_calls_no_hook_in_its_parents(tmp_path: Path) -> None:
    text = """
class Handler:
    def consume(self, batch):
        say("consume")

    def on_flush(self):
        say("on_flush")

    def on_close(self):
        say("on_close")

def open_queue(thread):
    return thread.open("q", BatchQueueConfig(consumer=handler))

if __name__ == "__main__":
    handler = in_process(Handler())
    process_queue(open_queue).produce(1)
    process_queue(open_queue).flush()
    if child := os.fork():
        assert os.waitpid(child, 0) == (child, 0)
    else:
        process_queue(open_queue).flush()
        close_process_queues()
        os._exit(0)
"""
    ended = Program(program(tmp_path, text)).end()
    assert (ended.status, ended.log) == (0, "")
    assert batches(ended.output) == ["consume", "on_flush", "on_close"]


@each_python
def test_they_end_with_their_queue_though_a_forked_child_lives_on(
    python: Path, tmp_path: Path
) -> None:
    """Such a child has a copy of all open files. What was killed would not say so."""
    text = """
import atexit

def end_aloud(batch):
    if batch == [2]:
        atexit.register(say, "ended")

if __name__ == "__main__":
    queue = run(end_aloud)
    queue.flush()
    if child := os.fork():
        queue.shutdown()
        os.kill(child, signal.SIGKILL)
    else:
        time.sleep(3600)
"""
    ended = Program(program(tmp_path, text), python=python).end()
    assert (ended.status, batches(ended.output)) == (0, ["ended"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pools_worker_is_told_that_it_may_have_none(
    method: str, tmp_path: Path
) -> None:
    text = f"""
def ship(_):
    try:
        run(say)
    except BatchQueueError as error:
        return str(error)

if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print(pool.map(ship, [0])[0])
"""
    ended = Program(program(tmp_path, text)).end()
    assert ended.status == 0, ended.log
    told = "in_process(say) can't start processes in a daemonic process"
    assert ended.output.startswith(told)
