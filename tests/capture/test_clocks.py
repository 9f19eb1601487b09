"""Two clocks read as one, on a machine that takes the thread's core away between them."""

from __future__ import annotations

import pytest

from hooktrace.capture.clocks import clock_anchor


@pytest.mark.parametrize("calm", range(16))
def test_the_reading_that_took_the_shortest_counts(
    monkeypatch: pytest.MonkeyPatch, calm: int
) -> None:
    """Whichever it is, and half way between what the clock said before and after."""
    now = 0
    waits = [40_000] * 16
    waits[calm] = 30
    left = iter(waits)

    def wall_clock() -> int:
        nonlocal now
        now += next(left)
        return now + 10**18

    def clock() -> int:
        return now

    monkeypatch.setattr("time.time_ns", wall_clock)
    host, wall = clock_anchor(clock)
    assert wall - host - 10**18 == 15
