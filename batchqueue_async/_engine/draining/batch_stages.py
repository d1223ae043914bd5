"""How far a batch has come: for code that goes on after a signal handler has raised."""

# Plain numbers, in their order, since each batch changes its stage several times, and
# code that goes on compares them.
PART_WAITING = -1
"""It waits for its retry, as WAITING, after its handler said that a part has failed; or
behind such a one."""
WAITING = 0
INSIDE = 1
"""Its handler was called; its drain task is inside, by the handler's lock."""
UNDECIDED = 2
"""Its call is over, or left to itself, and what came of it is not decided yet."""
PART_BOOKED = 3
"""Its handled items are booked, and not in it any more."""
TOLD = 4
"""It has failed, and `on_error` or the log was told."""
TO_BE_SETTLED = 5
"""Only settling it is left to do."""
