"""`python -m batchqueue_async.telemetry`: the command `batchqueue`."""

import sys

from batchqueue_async.telemetry._command import main

if __name__ == "__main__":
    sys.exit(main())
