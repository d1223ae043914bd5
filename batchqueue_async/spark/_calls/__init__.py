"""What `map_async` does on executors: rows in, calls, rows out.

From the outside in: `task` is the function that Spark runs, `caller` what a process
keeps for one `map_async`, `pipeline` the calls of one task, `line` their order, `slot`
one of the calls in flight, which is a partition of the queue.
"""
