"""Speech encoders that pad: the cost follows the window, not the speech."""

from __future__ import annotations

import math

from preroll.errors import InputError
from preroll.planning.formulas.check import number, positive

SHORTEST_WINDOW_S = 10.0
"""Below this the decoder of whisper tiny.en was seen to loop on short clips."""


def windows(speech_s: float, window_s: float) -> int:
    """Number of padded windows for `speech_s` seconds of speech: ceil(s/w), at least 1.

    Valid: window 10 to 30 s (longer is not trained, shorter makes the decoder loop).
    """
    if not SHORTEST_WINDOW_S <= number("window_s", window_s, 0.0, 1e4) <= 30.0:
        raise InputError(f"window_s is {window_s:g}; a padded window of 10 to 30 s is allowed")
    return max(1, math.ceil(number("speech_s", speech_s, 0.0, 1e7) / window_s))


def encoder_s(speech_s: float, window_s: float, seconds_per_window_second: float) -> float:
    """Encoder time of one clip: windows·window·cost, in seconds.

    `seconds_per_window_second`: measured on this machine (tiny.en measured 256 ms for 30 s, 97 for
    15, 60 for 10: faster than linear below 30 s, since attention is quadratic in the window).
    """
    cost = positive("seconds_per_window_second", seconds_per_window_second, 1e3)
    return windows(speech_s, window_s) * window_s * cost


def exponent(window_a_s: float, time_a_s: float, window_b_s: float, time_b_s: float) -> float:
    """k in time ~ window^k from two measured points; 1 is linear, 2 is pure attention."""
    ratio = positive("time_a_s", time_a_s) / positive("time_b_s", time_b_s)
    span = positive("window_a_s", window_a_s) / positive("window_b_s", window_b_s)
    if span == 1.0:
        raise InputError("the two windows are equal; two different windows are needed")
    return math.log(ratio) / math.log(span)
