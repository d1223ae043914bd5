"""All benchmarks, one after the other: `make bench`."""

from benchmarks import comparison, rebalancing

comparison.main()
rebalancing.main()
