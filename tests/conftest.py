"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# How fast a machine draws examples says nothing of the code.
settings.register_profile("preroll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("preroll")

# A shell that starts the tests in the background leaves these ignored, and every process that a
# test starts would inherit that: none could be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
