"""Events: on the bucket's device and no other, and asked by threads that captures do not mind."""

from __future__ import annotations

import pytest
import torch

from hooktrace import Tracer, hooks, trace
from hooktrace.ranks.hang.look import look
from hooktrace.testing import FakeBucket

from .fake_device import FakeDevice


def step_on(index: int, hook: object) -> None:
    """Call a hook for a bucket of a model on a device of that number."""
    parameter = torch.nn.Parameter(torch.empty(64, device=f"cuda:{index}"))
    hook(None, FakeBucket([parameter], 0, is_last=True)).wait()  # type: ignore[operator]


def test_models_on_two_devices_have_events_of_their_own() -> None:
    """One after another, so that an event of the first is free when the second one needs one."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, run_id="fake") as tracer,
    ):
        traced = [trace(hooks.fp16_compress_hook, tracer=tracer) for _ in range(2)]
        for _ in range(3):
            for index, hook in enumerate(traced):
                step_on(index, hook)
                tracer.flush()
        assert tracer.losses() == {}
        assert [bucket.device is not None for bucket in tracer.buckets()] == [True] * 6
    assert device.synchronising == []


@pytest.mark.parametrize("options", [{"error_every": 0}, {"error_every": 0, "debug": True}])
def test_each_thread_that_asks_has_said_that_captures_do_not_matter(options: dict) -> None:  # type: ignore[type-arg]
    """A query of a thread that has not breaks a graph that the program captures meanwhile."""
    with (
        FakeDevice() as device,
        Tracer(align_clocks=False, run_id="fake", **options) as tracer,
    ):
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)
        for _ in range(3):
            parameter = torch.nn.Parameter(torch.empty(64, device="cuda"))
            hook(None, FakeBucket([parameter], 0, is_last=False)).wait()
        tracer.flush()
    assert device.events > 0
    assert device.strict_queries == []


def test_a_look_for_hangs_may_ask_from_any_thread() -> None:
    """A command's, a dump's."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, channel=False, interval_s=3600, run_id="fake") as tracer,
    ):
        step_on(0, trace(hooks.fp16_compress_hook, tracer=tracer))
        (seen,) = look(tracer.models.all(), 0)
        assert device.asked > 0
        assert device.strict_queries == []
    assert seen.step == 0
