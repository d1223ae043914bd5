"""What `map_async` does on executors: rows in, calls, rows out.

From the outside in: `task` is what Spark runs, and what a process keeps for one
`map_async`; `pipeline` are the calls of one task, and their slots, each a partition of
the queue; `call` is one of them.
"""
