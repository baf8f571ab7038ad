"""`python -m preroll.worker`."""

import os
import sys

from preroll.worker.process import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the stage that are still at work must not keep the process from ending.
    os._exit(status)
