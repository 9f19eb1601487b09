"""What a sampled call reports to, and what DDP gets, with looks made up."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace.probes.step_sampler import CallStart, Part, SampledCall, StepSampler
from tests.probes.fakes import Sink, future_of, start_of


class Look:
    """Notes what it is asked."""

    def __init__(self, seen: list[str], name: str) -> None:
        self.seen, self.name = seen, name

    def join(self, future: Any) -> Any:
        """Return a future of the result, with this after it."""
        return future.then(lambda done: [*done.value(), self.name])

    def abandon(self, why: str) -> None:
        self.seen.append(f"{self.name}: {why}")


class Looks(Part):
    """Looks at each step; the part called ``silent`` does nothing, ``over`` nothing at the end."""

    next_step = 0

    def __init__(self, seen: list[str], name: str) -> None:
        self.seen, self.name = seen, name

    def enter(self, start: CallStart, sink: Any) -> bool:
        if self.name not in {"silent", "over"}:
            start.looks.append(Look(self.seen, self.name))
        return self.name != "silent"


class Call:
    """A call that reports to ``recorder``, and notes when it is released."""

    def __init__(self, recorder: Any) -> None:
        self.recorder, self.held, self.released = recorder, False, -1

    def release(self) -> None:
        self.held, self.released = False, self.recorder.clock()


def entered(*names: str) -> tuple[SampledCall, list[str], Any]:
    """Return a call that parts of these names have looked at, what they noted, and the sink."""
    seen: list[str] = []
    sink: Any = Sink()
    call = StepSampler([Looks(seen, name) for name in names]).enter(start_of(step=1), sink)
    assert (call is None) == (names == ("silent",))
    return call, seen, sink  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("names", "result"),
    [(["a", "b"], ["hook", "a", "b"]), (["silent", "b"], ["hook", "b"]), (["over"], ["hook"])],
)
def test_ddp_gets_the_result_through_all_parts(names: list[str], result: list[str]) -> None:
    """In their order; where none looks at the result nothing is between the hook and DDP."""
    call, _, _ = entered(*names)
    tracer: Any = "tracer"
    is_tracers = call.recorder(tracer) == tracer
    future = future_of(["hook"])
    passed_on = call.join(future)
    assert passed_on.wait() == result
    assert (passed_on is future) == is_tracers == (names == ["over"])
    entered("silent")


@pytest.mark.parametrize("result", [["hook"], ValueError("boom")])
def test_a_call_comes_to_the_ring_when_its_result_was_looked_at(result: Any) -> None:
    """Once, with the moment at which DDP got it; also where the hook failed meanwhile."""
    sampled, _, sink = entered("a", "b")
    call: Any = Call(sampled.recorder(sink))
    call.recorder.push(call)
    assert (call.held, sink.pushed) == (True, [])
    sink.clock.advance(7)
    future = sampled.join(future_of(result))
    assert (call.held, call.released, sink.pushed) == (False, 7, [call])
    if isinstance(result, Exception):
        with pytest.raises(RuntimeError, match="ValueError: boom"):
            future.wait()


@pytest.mark.parametrize("ends_before", [True, False])
@pytest.mark.parametrize("why", ["the hook raised", "MemoryError: full"])
def test_what_nobody_will_look_at_is_let_go_of(why: str, ends_before: bool) -> None:
    """The hook's result is DDP's, and the call comes to the ring, whenever it ends."""
    sampled, seen, sink = entered("a", "b")
    call: Any = Call(sampled.recorder(sink))
    if ends_before:
        call.recorder.push(call)
    if why == "the hook raised":
        sampled.abandon()
    else:
        future: Any = torch.futures.Future()
        with mock.patch.object(Look, "join", mock.Mock(side_effect=MemoryError("full"))):
            assert sampled.join(future) is future
    if not ends_before:
        call.recorder.push(call)
    assert seen == [f"a: {why}", f"b: {why}"]
    assert (call.held, sink.pushed) == (False, [call])
