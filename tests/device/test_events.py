"""Events: on the bucket's device and no other, asked by the drain alone, and not under its name."""

from __future__ import annotations

import pytest
import torch

from hooktrace import Tracer, hooks, trace
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
def test_only_the_drain_asks_and_it_has_said_that_captures_do_not_matter(options: dict) -> None:  # type: ignore[type-arg]
    """A query of any other thread breaks a graph that the program captures meanwhile."""
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
