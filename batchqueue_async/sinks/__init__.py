"""Where handlers write to.

* `epochs`: the contract of a sink that takes every epoch exactly once.
* `epoch_writer`: lets a queue's handlers write into the epoch that is open.
* `sqlite`, `postgres`, `parquet`: sinks that keep the contract. Each is imported from
  its own module, since it may need its own extra.
"""

from .epoch_writer import EpochWriter
from .epochs import Epoch, EpochSink

__all__ = ["Epoch", "EpochSink", "EpochWriter"]
