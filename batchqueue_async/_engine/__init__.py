"""What runs: partitions, drain tasks and their queue, on one event loop."""
