"""From other threads onto the loop: the same verbs, blocking."""
