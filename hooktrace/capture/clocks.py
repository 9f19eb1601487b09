"""The host's clock, and what the wall clock says at one moment of it."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns integer nanoseconds that never go back."""

_READINGS = 16


def clock_anchor(clock: Clock) -> tuple[int, int]:
    """Return readings of a clock and of the wall clock (ns since the Unix epoch) at one moment.

    Of some readings the one that took the shortest: on a busy machine a thread may lose its core
    between two clocks, for longer than a hook runs.
    """
    windows = [(clock(), time.time_ns(), clock()) for _ in range(_READINGS)]
    before, wall, after = min(windows, key=lambda window: window[2] - window[0])
    return (before + after) // 2, wall
