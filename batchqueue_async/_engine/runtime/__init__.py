"""What the event loop and the process do to a queue: ends, forks, cancellations."""
