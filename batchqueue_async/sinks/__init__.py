"""Where handlers write to.

* `epochs`: the contract of a sink that takes every epoch exactly once, and a handler
  that writes into the epoch that is open.
* `sqlite`, `postgres`, `parquet`: sinks that keep the contract. Each is imported from
  its own module, since it may need its own extra.
"""

from .epochs import Epoch, EpochSink, EpochWriter

__all__ = ["Epoch", "EpochSink", "EpochWriter"]
