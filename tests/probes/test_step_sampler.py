"""Which parts look at a call, what it reports to, and what DDP gets, with parts made up."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace.probes.step_sampler import CallStart, StepSampler
from tests.fakes import fake_clock


class Look:
    """Notes what it is asked."""

    def __init__(self, seen: list[str], name: str) -> None:
        self.seen, self.name = seen, name

    def join(self, future: Any) -> Any:
        """Return a future of the result, with this after it."""
        return future.then(lambda done: [*done.value(), self.name])

    def abandon(self, why: str) -> None:
        self.seen.append(f"{self.name} abandoned: {why}")


class Part:
    """Looks at each ``every``-th step."""

    def __init__(self, seen: list[str], name: str, every: int) -> None:
        self.seen, self.name, self.every = seen, name, every
        self.next_step = every

    def enter(self, start: CallStart, sink: Any) -> bool:
        """Note the step; the part called ``silent`` does nothing, ``over`` nothing at the end."""
        self.seen.append(f"{self.name} {start.step}")
        self.next_step = start.step + self.every
        if self.name not in {"silent", "over"}:
            start.looks.append(Look(self.seen, self.name))
        return self.name != "silent"

    def leave(self) -> None:
        self.seen.append(f"{self.name} left")


class Sink:
    """A tracer's ring and clock."""

    event_pool = None

    def __init__(self) -> None:
        self.clock = fake_clock()
        self.pushed: list[Any] = []
        self.push = self.pushed.append


class Call:
    """A call that notes when it is released."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.held = False
        self.released: int | None = None

    def release(self) -> None:
        self.held, self.released = False, self.recorder.clock()


def ended(result: Any) -> Any:
    """Return a hook's future that has a result, or an error."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def start(step: int) -> CallStart:
    """Return a call of a step."""
    unused: Any = None
    return CallStart(unused, step, 0, unused, None)


def test_each_part_is_asked_on_its_own_steps() -> None:
    """And the sampler as a whole says when the next of them is."""
    seen: list[str] = []
    sink: Any = Sink()
    sampler = StepSampler([Part(seen, "two", 2), Part(seen, "three", 3)])
    for step in range(1, 7):
        if step >= sampler.next_step:
            sampler.enter(start(step), sink)
    assert seen == ["two 2", "three 3", "two 4", "two 6", "three 6"]
    assert sampler.next_step == 8


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["silent", "b"], ["over", "b"]])
def test_ddp_gets_the_result_through_all_parts(names: list[str]) -> None:
    """In their order; those that have nothing to do at the end are not asked."""
    sink: Any = Sink()
    call = StepSampler([Part([], name, 1) for name in names]).enter(start(1), sink)
    assert call is not None
    assert call.join(ended(["hook"])).wait() == [
        "hook", *(name for name in names if name not in {"silent", "over"})
    ]  # fmt: skip


def test_a_call_that_nobody_looks_at_is_the_tracers_own() -> None:
    """Nothing stands between the hook and DDP."""
    sink: Any = None
    assert StepSampler([Part([], "silent", 1)]).enter(start(1), sink) is None


def test_a_call_that_was_looked_at_before_only_is_not_held_back() -> None:
    """It reports to the tracer, and DDP gets the hook's own future."""
    sink: Any = Sink()
    tracer: Any = "tracer"
    call = StepSampler([Part([], "over", 1)]).enter(start(1), sink)
    assert call is not None
    assert call.recorder(tracer) == "tracer"
    future = ended(1)
    assert call.join(future) is future


@pytest.mark.parametrize("result", [["hook"], ValueError("boom")])
def test_a_call_comes_to_the_ring_when_its_result_was_looked_at(result: Any) -> None:
    """Once, with the moment at which DDP got it; also where the hook failed meanwhile."""
    sink: Any = Sink()
    tracer: Any = "tracer"
    sampled = StepSampler([Part([], "a", 1), Part([], "b", 1)]).enter(start(1), sink)
    assert sampled is not None
    call: Any = Call(sampled.recorder(tracer))
    call.recorder.push(call)
    assert (call.held, sink.pushed) == (True, [])
    sink.clock.advance(7)
    future = sampled.join(ended(result))
    assert (call.held, call.released, sink.pushed) == (False, 7, [call])
    if isinstance(result, Exception):
        with pytest.raises(RuntimeError, match="ValueError: boom"):
            future.wait()


def test_a_hook_that_raised_and_a_tracer_that_closes_reach_all_parts() -> None:
    """None is left waiting."""
    seen: list[str] = []
    sink: Any = Sink()
    sampler = StepSampler([Part(seen, "a", 1), Part(seen, "b", 1)])
    call = sampler.enter(start(1), sink)
    assert call is not None
    ended_call: Any = Call(call)
    call.push(ended_call)
    call.abandon()
    assert sink.pushed == [ended_call]
    sampler.leave()
    whys = ["a abandoned: the hook raised", "b abandoned: the hook raised"]
    assert seen[2:] == [*whys, "a left", "b left"]


@pytest.mark.parametrize("ends_before", [True, False])
def test_a_look_that_cannot_join_leaves_ddp_the_hooks_result(ends_before: bool) -> None:
    """And the call comes to the ring, whenever it ends."""
    seen: list[str] = []
    sink: Any = Sink()
    part = Part(seen, "a", 1)
    sampled = StepSampler([part, Part(seen, "b", 1)]).enter(start(1), sink)
    assert sampled is not None
    call: Any = Call(sampled.recorder(sink))
    if ends_before:
        call.recorder.push(call)
    future: Any = torch.futures.Future()
    with mock.patch.object(Look, "join", mock.Mock(side_effect=MemoryError("full"))):
        assert sampled.join(future) is future
    if not ends_before:
        call.recorder.push(call)
    assert seen[2:] == ["a abandoned: MemoryError: full", "b abandoned: MemoryError: full"]
    assert (call.held, sink.pushed) == (False, [call])
