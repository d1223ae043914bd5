"""How items get from partitions to handlers: drain tasks, batches, attempts."""
