"""A call's stamps: a clock that fails leaves its times unknown, and the call comes to its end."""

from __future__ import annotations

from unittest import mock

import pytest

from hooktrace.staging.calls import END_UNKNOWN, NOT_YET, BucketCall, clock_anchor
from tests.fakes import FakeOperation


def test_a_clock_that_fails_ends_a_units_call_too() -> None:
    """All of it is one collective, and its step has the call: nobody is given it."""
    clock = mock.Mock(side_effect=OSError("no time"))
    call = BucketCall(mock.Mock(collective=FakeOperation(4).describe()), 1, 0, clock)
    call.bare, call.operation = True, call.slot.collective
    call.over()
    assert not call.in_flight
    assert (call.unknown, call.operation) == ("OSError: no time", None)
    assert (call.rounds, call.done, call.exposed) == ((), END_UNKNOWN, None)


def test_a_pass_ends_once() -> None:
    """Whoever hears of it first stamps it: to look at what has arrived takes time."""
    call = BucketCall(mock.Mock(), 1, 0, mock.Mock(side_effect=[5, 9]))
    call.backward_end = NOT_YET
    call.backward_over(False)
    call.backward_over(False)
    assert call.backward_end == 5


@pytest.mark.parametrize("calm", [0, 15])
def test_the_reading_that_took_the_shortest_counts(calm: int) -> None:
    """Whichever it is, and half way between what the clock said before and after."""
    now = 0
    waits = iter(30 if i == calm else 40_000 for i in range(16))

    def wall_clock() -> int:
        nonlocal now
        now += next(waits)
        return now + 10**18

    with mock.patch("time.time_ns", wall_clock):
        host, wall = clock_anchor(lambda: now)
    assert wall - host - 10**18 == 15
