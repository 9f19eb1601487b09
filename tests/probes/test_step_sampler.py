"""Which parts look at a call, what it reports to, and what DDP gets, with parts made up."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace.probes.step_sampler import CallStart, SampledCall, StepSampler
from tests.probes.fakes import Sink, future_of, start_of


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


class Call:
    """A call that notes when it is released."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.held = False
        self.released: int | None = None

    def release(self) -> None:
        self.held, self.released = False, self.recorder.clock()


TRACER: Any = "tracer"


def entered(*names: str) -> tuple[SampledCall | None, list[str], Any]:
    """Return a call that parts of these names have looked at, what they noted, and the sink."""
    seen: list[str] = []
    sink: Any = Sink()
    sampler: Any = StepSampler([Part(seen, name, 1) for name in names])
    return sampler.enter(start_of(step=1), sink), seen, sink


def test_each_part_is_asked_on_its_own_steps() -> None:
    """And the sampler as a whole says when the next of them is; all hear when it leaves."""
    seen: list[str] = []
    sink: Any = Sink()
    sampler = StepSampler([Part(seen, "two", 2), Part(seen, "three", 3)])
    for step in range(1, 7):
        if step >= sampler.next_step:
            sampler.enter(start_of(step=step), sink)
    assert sampler.next_step == 8
    sampler.leave()
    assert seen == ["two 2", "three 3", "two 4", "two 6", "three 6", "two left", "three left"]


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["silent", "b"], ["over", "b"]])
def test_ddp_gets_the_result_through_all_parts(names: list[str]) -> None:
    """In their order; those that have nothing to do at the end are not asked."""
    call, _, _ = entered(*names)
    assert call is not None
    assert call.join(future_of(["hook"])).wait() == [
        "hook", *(name for name in names if name not in {"silent", "over"})
    ]  # fmt: skip


def test_a_call_that_nobody_waits_for_is_the_tracers_own() -> None:
    """Nothing stands between the hook and DDP where its result is not looked at."""
    assert entered("silent")[0] is None
    call, _, _ = entered("over")
    assert call is not None
    assert call.recorder(TRACER) == TRACER
    future = future_of(1)
    assert call.join(future) is future


@pytest.mark.parametrize("result", [["hook"], ValueError("boom")])
def test_a_call_comes_to_the_ring_when_its_result_was_looked_at(result: Any) -> None:
    """Once, with the moment at which DDP got it; also where the hook failed meanwhile."""
    sampled, _, sink = entered("a", "b")
    assert sampled is not None
    call: Any = Call(sampled.recorder(TRACER))
    call.recorder.push(call)
    assert (call.held, sink.pushed) == (True, [])
    sink.clock.advance(7)
    future = sampled.join(future_of(result))
    assert (call.held, call.released, sink.pushed) == (False, 7, [call])
    if isinstance(result, Exception):
        with pytest.raises(RuntimeError, match="ValueError: boom"):
            future.wait()


def test_a_hook_that_raised_reaches_all_parts() -> None:
    """None is left waiting."""
    sampled, seen, sink = entered("a", "b")
    assert sampled is not None
    call: Any = Call(sampled)
    sampled.push(call)
    sampled.abandon()
    assert sink.pushed == [call]
    assert seen[2:] == ["a abandoned: the hook raised", "b abandoned: the hook raised"]


@pytest.mark.parametrize("ends_before", [True, False])
def test_a_look_that_cannot_join_leaves_ddp_the_hooks_result(ends_before: bool) -> None:
    """And the call comes to the ring, whenever it ends."""
    sampled, seen, sink = entered("a", "b")
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
