"""From start to end: the tasks of a queue, its flush, its shutdown, its growth."""
