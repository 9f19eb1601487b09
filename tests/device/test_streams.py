"""On a device no hook lets go of memory that a stream still uses, and none waits for the device."""

from __future__ import annotations

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.testing import FakeBucket

from .fake_device import FakeDevice
from .hook_table import HOOKS, fake_parameters

STEPS = 6

FAULTY = (
    "batched powerSGD, nothing kept",
    "top-k",
    "unfinished expression",
    "replaced in the state",
    "replaced in its dictionary",
)


def train(name: str, parameters: list[torch.nn.Parameter], tracer: Tracer | None = None) -> None:
    """Run a hook, traced or not, on two buckets of fake gradients for some steps."""
    hook, make_state = HOOKS[name]
    if tracer is not None:
        hook = trace(hook, tracer=tracer)
    buckets = [
        FakeBucket(parameters[:1], 0, is_last=False),
        FakeBucket(parameters[1:], 1, is_last=True),
    ]
    state = make_state()
    for _ in range(STEPS):
        for bucket in buckets:
            hook(state, bucket).wait()


@pytest.mark.parametrize("name", HOOKS)
def test_memory_is_kept_until_its_streams_are_done(name: str) -> None:
    """Whatever a hook holds across a yield, in a variable or not; and nothing synchronises."""
    with FakeDevice() as device:
        parameters = fake_parameters()
        train(name, parameters)
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
        train(name, parameters, tracer)
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
        train(name, fake_parameters())
    assert device.faults()
