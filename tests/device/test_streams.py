"""On a device no hook lets go of memory that a stream still uses, and none waits for the device."""

from __future__ import annotations

import pytest

from hooktrace import Tracer

from .fake_device import FakeDevice
from .hook_table import HOOKS, fake_parameters, training

STEPS = 6

FAULTY = (
    "batched powerSGD, nothing kept",
    "top-k",
    "unfinished expression",
    "replaced in the state",
    "replaced in its dictionary",
)


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("name", HOOKS)
def test_memory_is_kept_until_its_streams_are_done(name: str, is_traced: bool) -> None:
    """Whatever a hook holds across a yield, in a variable or not; and nothing synchronises."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, run_id="fake") as tracer,
    ):
        parameters = fake_parameters()
        training(name, parameters, tracer if is_traced else None)(STEPS)
        tracer.flush()
        assert tracer.losses() == {}
        on_device = [bucket.device is not None for bucket in tracer.buckets()]
        assert on_device == [True] * 2 * STEPS * is_traced
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", FAULTY)
def test_without_it_memory_is_given_out_too_early(name: str) -> None:
    """The same hooks, without what the driver does for them: the simulation sees it."""
    with FakeDevice(protected=False) as device:
        training(name, fake_parameters())(STEPS)
    assert device.faults()
