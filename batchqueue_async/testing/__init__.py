"""For tests of programs that use the queue: virtual time, a handler that records.

Needs nothing but the standard library. `batchqueue_async.testing.pytest_plugin` is a
plugin for pytest that is active only where it is asked for.
"""

from .recording_handler import RecordingHandler
from .virtual_time import Deadlock, VirtualTimeLoop, run_virtual, settle

__all__ = [
    "Deadlock",
    "RecordingHandler",
    "VirtualTimeLoop",
    "run_virtual",
    "settle",
]
