"""A `LoopThread` may be started within a line of log, while a lock is held."""

from pathlib import Path

from tests.bridge.programs import Program, each_python

PROGRAM = """
sys.modules["uvloop"] = None  # asyncio's own loop has a line at DEBUG, as it is made.
sent = []

def open_lines(loop_thread):
    return loop_thread.open("lines", BatchQueueConfig(consumer=in_thread(sent.extend)))

class Shipping(logging.Handler):
    def emit(self, record):  # Under the handler's own lock.
        process_queue(open_lines).offer(record.getMessage())

logging.getLogger().handlers = [Shipping(level=logging.DEBUG)]
logging.getLogger().setLevel(logging.DEBUG)
logging.info("an order")
asyncio.run(asyncio.sleep(0))
process_queue(open_lines).flush(timeout=10)
print(sent)
"""


@each_python
def test_a_logging_handler_may_be_the_first_to_use_a_queue(python: Path) -> None:
    with Program(PROGRAM, python=python) as program:
        ended = program.end(within=20)
    assert (ended.status, ended.log) == (0, "")
    # Other threads' loops are told of.
    assert ended.output.startswith("['an order', 'Using selector: ")
    assert ended.output.count("Using") == 1
