"""A partitioned, self-draining queue: what a caller holds, and the parts below it.

`queue_parts.py` is the map: the parts that one queue is made of. An item goes through
`intake`, `partitions/`, `draining/` and `handlers/`, in this order.

A signal handler (Ctrl-C, say) or a `RecursionError` may raise at nearly any point, and
the counts of items must be exact all the same. Comments call code "struck" if such an
error has cut it short. Three idioms keep the counts exact; comments only name them.

- "No call in between", "no call from here on": CPython runs signal handlers where
  something is called, or a loop jumps back. So assignments without a call between them
  happen all or not at all. That is why `x += (y,)` may stand for `append`: it makes the
  new object first, and changes `x` in one step.
- "Told before it is accepted": a drain task is woken before the item is in. To wake it
  for nothing is harmless; an item for which nobody is woken waits for ever.
- A stage (`draining/batch_stages.py`) says how far a batch has come, so that code that
  goes on after it was struck does nothing twice.
"""
