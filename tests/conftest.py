"""What holds for every test."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background leaves SIGINT ignored, and every process that a test
# starts would inherit that: none could be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
