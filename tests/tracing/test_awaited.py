"""Results that come from their devices when the test says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hooktrace.tracing.awaited import AwaitedResults


class Result:
    """A result of a model's step that comes when it is told to."""

    def __init__(self, model: object, step: int) -> None:
        self.slot, self.step = SimpleNamespace(model=model), step
        self.come, self.was_read, self.was_let_go = False, False, False

    def has_arrived(self) -> bool:
        return self.come

    def read(self) -> None:
        self.was_read = True

    def let_go(self) -> None:
        self.was_let_go = True


def results(model: object, count: int) -> list[Any]:
    """Return results of steps one after another."""
    return [Result(model, step) for step in range(count)]


def test_they_come_read_and_in_their_order() -> None:
    """One that has not come holds back the ones after it, and its own step alone."""
    model: Any = object()
    other: Any = object()
    awaited, found = AwaitedResults(), results(model, 3)
    for result in found:
        assert awaited.add(result) == 0
    found[0].come = found[2].come = True
    assert list(awaited.arrived()) == [found[0]]
    assert [result.was_read for result in found] == [True, False, False]
    assert [awaited.holds(model, step) for step in range(3)] == [False, True, True]
    assert not awaited.holds(other, 1)
    found[1].come = True
    assert list(awaited.arrived()) == found[1:]


def test_a_device_that_hangs_costs_a_bounded_number() -> None:
    """The oldest go; and all that is left when the tracer ends."""
    model: Any = object()
    awaited, found = AwaitedResults(capacity=2), results(model, 4)
    assert [awaited.add(result) for result in found] == [0, 0, 1, 1]
    assert [result.was_let_go for result in found] == [True, True, False, False]
    assert awaited.give_up() == 2
    assert all(result.was_let_go for result in found)
    assert list(awaited.arrived()) == []
