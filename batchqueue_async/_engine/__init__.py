"""A partitioned, self-draining queue: what a caller holds, and its rooms below it."""
