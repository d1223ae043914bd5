"""A partitioned, self-draining queue: what a caller holds, and its rooms below it.

`queue_parts.py` is the map: the parts that one queue is made of. An item goes through
`intake`, `partitions/`, `draining/` and `handlers/`, in this order.

A signal handler (Ctrl-C, say) and a `RecursionError` may strike anywhere, and the
account of items must be exact all the same. Three idioms keep it so; comments name them
shortly.

- "No call in between", "no call from here on": CPython runs signal handlers where
  something is called, or a loop jumps back. Stores without a call between them happen
  all or not at all. That is why `x += (y,)` may stand for `append`: first the new
  object, then one store.
- "Said before it is accepted": a drain task is woken before the item is in. To wake it
  for nothing is harmless; an item that nobody was woken for waits for ever.
- A stage (`draining/batch_stages.py`) says how far a batch has come, so that whoever
  goes on where something was struck does nothing twice.
"""
