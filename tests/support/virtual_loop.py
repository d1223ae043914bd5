"""The library's own virtual time, under the name that the suite knows."""

from batchqueue_async.testing import Deadlock, VirtualTimeLoop, run_virtual

__all__ = ["Deadlock", "VirtualTimeLoop", "run_virtual"]
