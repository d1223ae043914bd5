"""Where items wait: partitions, and which one an item goes to."""
