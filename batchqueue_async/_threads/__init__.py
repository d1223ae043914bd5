"""What threads and an event loop need of each other: for the bridge and the ring."""
