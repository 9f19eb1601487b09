"""A call's stamps: a clock that fails leaves its times unknown, and the call comes to its end."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.staging.calls import NOT_YET, BucketCall, Round, clock_anchor
from tests.fakes import FakeOperation


def _clock(good: int) -> Iterator[int]:
    yield from range(1, good + 1)
    raise RuntimeError("the clock is lost")


@pytest.mark.parametrize("good", [True, False])
def test_one_collective_that_was_waited_for_is_all_of_its_call(good: bool) -> None:
    """It takes one reading of the clock; its step has the call, so nobody is given it."""
    recorder: Any = SimpleNamespace(clock=_clock(good).__next__)
    slot: Any = SimpleNamespace(collective=(collective := FakeOperation(wire_bytes=4).describe()))
    call = BucketCall(slot, 1, 0, recorder)
    call.is_only()
    assert call.operation is collective
    call.over()
    assert call.operation is None
    assert not call.in_flight
    if good:
        assert call.rounds == (Round(collective, 0, 1),)
        assert (call.bare, call.done, call.launched, call.exposed) == (True, 1, 1, 1)
    else:
        assert call.unknown == "RuntimeError: the clock is lost"
        assert (call.rounds, call.done, call.exposed) == ((), NOT_YET, None)


@pytest.mark.parametrize("calm", [0, 15])
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
