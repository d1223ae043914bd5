"""What `map_async` does on executors: rows in, calls, rows out.

From the outside in: `task` is the function that Spark runs, `caller` what a process
keeps for one `map_async`, `pipeline` the calls of one task, `call` one of them and
their order, `slot` the place of one in flight, which is a partition of the queue.
"""
