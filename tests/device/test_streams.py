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


@pytest.mark.parametrize("name", HOOKS)
def test_memory_is_kept_until_its_streams_are_done(name: str) -> None:
    """Whatever a hook holds across a yield, in a variable or not; and nothing synchronises."""
    with FakeDevice() as device:
        parameters = fake_parameters()
        training(name, parameters)(STEPS)
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", HOOKS)
def test_tracing_adds_no_synchronisation_and_no_fault(name: str) -> None:
    """Each call has its times on the device, and nothing else is other than untraced."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, run_id="fake") as tracer,
    ):
        parameters = fake_parameters()
        training(name, parameters, tracer)(STEPS)
        tracer.flush()
        assert tracer.losses() == {}
        assert len(tracer.buckets()) == 2 * STEPS
        assert all(bucket.device is not None for bucket in tracer.buckets())
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", FAULTY)
def test_without_it_memory_is_given_out_too_early(name: str) -> None:
    """The same hooks, without what the driver does for them: the simulation sees it."""
    with FakeDevice(protected=False) as device:
        training(name, fake_parameters())(STEPS)
    assert device.faults()
