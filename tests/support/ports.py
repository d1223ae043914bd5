"""Free loopback ports."""

import random
import socket
from contextlib import suppress

# Below those that Linux gives to clients: else a client's connection could get the port
# before the server that it is for.
SERVERS = range(20_000, 32_000)
# Parts of the suite run at the same time, and must not draw the same.
_chance = random.SystemRandom()


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    while True:
        port = _chance.choice(SERVERS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
