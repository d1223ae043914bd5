"""The bridge on a machine that others keep busy: two processes that only compute.

Producer and loop then compete with them for the two cores. A lock's holder that is put
aside, or a wake-up that comes late, holds everybody up.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import bridge_uses
from benchmarks.contender import BOUND
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS
from benchmarks.turns import Turns

BUSY = 2
USES = (bridge_uses.ONE_HANDLER, bridge_uses.CONSUMER)
# Ends when its parent process ends, however that ends.
_COMPUTE = """\
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare the uses that most have with janus, and with the floor."""
    uses = [use for use in bridge_uses.uses() if use.name in USES]
    title = f"From 1 thread, beside {BUSY} busy processes; at most {BOUND:,} items wait"
    empty = Table("busy machine", title, COLUMNS)
    # Every sample is disturbed, as intended, so none is taken again for that.
    disturbed = Turns(scale.of(5, 3), turns.is_quick, until=0.0)
    with busy_processes():
        return bridge_uses.compared(empty, uses, loop, scale, disturbed)


@contextmanager
def busy_processes() -> Iterator[None]:
    """Keep the processors busy until the end of the block."""
    with ExitStack() as stack:
        for _ in range(BUSY):
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", _COMPUTE])
            )
            stack.callback(process.kill)
        yield
