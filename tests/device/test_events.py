"""Events: on the bucket's device and no other, and asked by threads that captures do not mind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import Tracer, hooks, trace
from hooktrace.ranks.hang.look import look
from hooktrace.testing import FakeBucket

from .fake_device import FakeDevice

ALONE: dict[str, Any] = {"error_every": 0, "align_clocks": False, "run_id": "fake"}


def step_on(index: int, hook: Any, *, is_last: bool = True) -> None:
    """Call a hook for a bucket of a model on a device of that number."""
    parameter = torch.nn.Parameter(torch.empty(64, device=f"cuda:{index}"))
    hook(None, FakeBucket([parameter], 0, is_last=is_last)).wait()


def test_models_on_two_devices_have_events_of_their_own() -> None:
    """One after another, so that an event of the first is free when the second one needs one."""
    with FakeDevice() as device, Tracer(**ALONE) as tracer:
        traced = [trace(hooks.fp16_compress_hook, tracer=tracer) for _ in range(2)]
        for _ in range(3):
            for index, hook in enumerate(traced):
                step_on(index, hook)
                tracer.flush()
        assert tracer.losses() == {}
        assert [bucket.device is not None for bucket in tracer.buckets()] == [True] * 6
    assert device.synchronising == []


@pytest.mark.parametrize("debug", [False, True])
def test_each_thread_that_asks_has_said_that_captures_do_not_matter(debug: bool) -> None:
    """A query of a thread that has not breaks a graph that the program captures meanwhile."""
    with FakeDevice() as device, Tracer(debug=debug, **ALONE) as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)
        for _ in range(3):
            step_on(0, hook, is_last=False)
        tracer.flush()
    assert device.events > 0
    assert device.strict_queries == []


def test_a_look_for_hangs_may_ask_from_any_thread() -> None:
    """A command's, a dump's."""
    with FakeDevice() as device, Tracer(channel=False, interval_s=3600, **ALONE) as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)  # which DDP would hold
        step_on(0, hook)
        (seen,) = look(tracer.models.all(), 0)
        assert device.asked > 0
        assert device.strict_queries == []
    assert seen.step == 0
