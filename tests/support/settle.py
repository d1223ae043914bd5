"""The library's own, under the name that the suite knows."""

from batchqueue_async.testing import settle

__all__ = ["settle"]
