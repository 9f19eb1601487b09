"""Which parts look at a call, what it reports to, and what DDP gets, with parts made up."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.probes.step_sampler import CallStart, StepSampler


class Look:
    """Notes what it is asked."""

    def __init__(self, seen: list[str], name: str, recorder: Any) -> None:
        self.seen, self.name, self.recorder = seen, name, recorder

    def join(self, future: Any) -> Any:
        """Return what the future is, and this after it."""
        return [*future, self.name]

    def abandon(self) -> None:
        """Note it."""
        self.seen.append(f"{self.name} abandoned")


class Part:
    """Looks at each ``every``-th step."""

    def __init__(self, seen: list[str], name: str, every: int, recorder: Any = None) -> None:
        self.seen, self.name, self.every = seen, name, every
        self.recorder = recorder
        self.next_step = every

    def enter(self, start: CallStart, sink: Any) -> Look | None:
        """Note the step; the part called ``silent`` has nothing to do at the end."""
        self.seen.append(f"{self.name} {start.step}")
        self.next_step = start.step + self.every
        return None if self.name == "silent" else Look(self.seen, self.name, self.recorder)

    def leave(self) -> None:
        """Note it."""
        self.seen.append(f"{self.name} left")


def start(step: int) -> CallStart:
    """Return a call of a step."""
    unused: Any = None
    return CallStart(unused, step, 0, unused, None)


def test_each_part_is_asked_on_its_own_steps() -> None:
    """And the sampler as a whole says when the next of them is."""
    seen: list[str] = []
    sink: Any = None
    sampler = StepSampler([Part(seen, "two", 2), Part(seen, "three", 3)])
    for step in range(1, 7):
        if step >= sampler.next_step:
            sampler.enter(start(step), sink)
    assert seen == ["two 2", "three 3", "two 4", "two 6", "three 6"]
    assert sampler.next_step == 8


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["silent", "b"]])
def test_ddp_gets_the_result_through_all_parts(names: list[str]) -> None:
    """In their order; those that have nothing to do at the end are not asked."""
    sink: Any = None
    call = StepSampler([Part([], name, 1) for name in names]).enter(start(1), sink)
    assert call is not None
    future: Any = ["hook"]
    assert call.join(future) == ["hook", *(name for name in names if name != "silent")]


def test_a_call_that_nobody_waits_for_is_the_tracers_own() -> None:
    """Nothing stands between the hook and DDP."""
    sink: Any = None
    assert StepSampler([Part([], "silent", 1)]).enter(start(1), sink) is None


def test_the_call_reports_to_the_part_that_holds_it_back() -> None:
    """To the tracer where none does."""
    sink: Any = None
    tracer: Any = "tracer"
    for recorder in (None, "probe"):
        parts = [Part([], "a", 1), Part([], "b", 1, recorder)]
        call = StepSampler(parts).enter(start(1), sink)
        assert call is not None
        assert call.recorder(tracer) == (recorder or "tracer")


def test_a_hook_that_raised_and_a_tracer_that_closes_reach_all_parts() -> None:
    """None is left waiting."""
    seen: list[str] = []
    sink: Any = None
    sampler = StepSampler([Part(seen, "a", 1), Part(seen, "b", 1)])
    call = sampler.enter(start(1), sink)
    assert call is not None
    call.abandon()
    sampler.leave()
    assert seen[2:] == ["a abandoned", "b abandoned", "a left", "b left"]
