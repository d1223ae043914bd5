"""`python -m batchqueue_async`: the command `batchqueue`."""

import sys

from batchqueue_async._command import main

if __name__ == "__main__":
    sys.exit(main())
