"""What `map_partitions_with_queue` does on executors: items in, emitted rows out.

From the outside in: `task` is the function that Spark runs, `exchange` its work on the
loop, `output` what handlers have emitted, `emit` how they do it.
"""
