"""Hooks, probes and debug checks on a device: none waits for it, none lets go too early.

Events: on the bucket's device and no other, and asked by threads that captures do not mind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace import Tracer, hooks, trace
from hooktrace.ranks.hang.look import look
from hooktrace.testing import FakeBucket

from .fake_device import FakeDevice
from .hook_table import HOOKS, fake_parameters, power_sgd, training

STEPS = 6
CHECKED = [1, 2, 3, 4, 5]
ALONE: dict[str, Any] = {"align_clocks": False, "run_id": "fake"}
UNCHECKED = {**ALONE, "error_every": 0}
PROBED = {**ALONE, "error_every": 1, "error_all_buckets": True}
LOOKS = {**PROBED, "debug": True}

FAULTY = (
    "batched powerSGD, nothing kept",
    "top-k",
    "unfinished expression",
    "replaced in the state",
    "replaced in its dictionary",
)


@pytest.fixture(autouse=True)
def nothing_ends(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No probe or check ends for trouble of its own."""
    with caplog.at_level(logging.INFO, logger="hooktrace"):
        yield
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if "end here" in line or "no longer" in line], said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("hook", [hooks.powerSGD_hook, hooks.batched_powerSGD_hook])
def test_an_autocast_around_backward_rounds_nothing(hook: Any, dtype: torch.dtype) -> None:
    """Where collectives complete inline, all of a hook runs within it."""
    bucket, found = FakeBucket([torch.nn.Parameter(torch.zeros(40, 43, dtype=dtype))]), []
    for enabled in (False, True):
        state = power_sgd()()
        for _ in range(STEPS):
            torch.arange(40.0 * 43, out=bucket.buffer()).sin_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                found.append(hook(state, bucket).wait().clone())
    assert torch.equal(found[STEPS - 1], found[-1])


@pytest.mark.parametrize(
    "options",
    [None, UNCHECKED, pytest.param(LOOKS, marks=pytest.mark.slow)],
    ids=["untraced", "traced", "looked at"],
)
@pytest.mark.parametrize("name", HOOKS)
def test_memory_is_kept_until_its_streams_are_done(
    name: str, options: dict[str, Any] | None
) -> None:
    """Whatever a hook holds across a yield, in a variable or not; and nothing synchronises.

    What looking finds comes to the records: that a number is there, since nothing computes.
    """
    with FakeDevice() as device, Tracer(**(options or UNCHECKED)) as tracer:
        parameters = fake_parameters()
        traced_by = None if options is None else tracer
        training(name, parameters, traced_by, device.end_backward)(STEPS)
        tracer.flush()
        assert tracer.losses() == {}
        buckets = tracer.buckets()
    errors = [bucket.step for bucket in buckets if bucket.error is not None]
    on_device = [bucket.device is not None for bucket in buckets]
    assert on_device == [True] * 2 * STEPS * (options is not None)
    assert errors == [step for step in CHECKED * (options is LOOKS) for _ in range(2)]
    assert (device.ends > 0) == (options is LOOKS)
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", FAULTY)
def test_without_it_memory_is_given_out_too_early(name: str) -> None:
    """The same hooks, without what the driver does for them: the simulation sees it."""
    with FakeDevice(protected=False) as device:
        training(name, fake_parameters())(STEPS)
    assert device.faults()


@pytest.mark.slow
def test_under_capture_nothing_is_looked_at() -> None:
    """A graph has in it what the hook enqueues, and no more: no event, no copy, no collective."""
    counts = []
    for options in (LOOKS, UNCHECKED):
        with FakeDevice() as device, Tracer(**options) as tracer:
            run = training("fp16", fake_parameters(), tracer, device.end_backward)
            run(CHECKED[0])
            before = device.counts()
            device.captured = True
            run(2)
            device.captured = False
            counts.append([after - one for after, one in zip(device.counts(), before, strict=True)])
            tracer.flush()
            assert tracer.losses() == {"stamp_failed": 4}
    assert counts[0] == counts[1]
    assert counts[0][2] == 0


def no_memory(*_: object) -> torch.Tensor:
    raise MemoryError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        # Not even a word of consent: the others would issue their part, and this one not.
        ("hooktrace.probes.probe", "finite_parts", no_memory),
        ("hooktrace.probes.agreement.Consent", "given", lambda *_: False),
    ],
)
def test_a_rank_that_cannot_probe_issues_nothing(
    owner: str, name: str, fails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor without the consent of all: the hook's collectives are alone as if not checked."""
    issued = []
    for options in (UNCHECKED, PROBED):
        with FakeDevice() as device, Tracer(**options) as tracer:
            run = training("fp16", fake_parameters(), tracer, device.end_backward)
            run(CHECKED[0])
            monkeypatch.setattr(f"{owner}.{name}", fails)
            run(1)
            monkeypatch.undo()
            issued.append(device.collectives)
            tracer.flush()
            assert set(tracer.losses()) == ({"check_failed"} if options["error_every"] else set())
    assert issued[0] == issued[1]


def step_on(index: int, hook: Any, *, is_last: bool = True) -> None:
    """Call a hook for a bucket of a model on a device of that number."""
    parameter = torch.nn.Parameter(torch.empty(64, device=f"cuda:{index}"))
    hook(None, FakeBucket([parameter], 0, is_last=is_last)).wait()


def test_models_on_two_devices_have_events_of_their_own() -> None:
    """One after another, so that an event of the first is free when the second one needs one."""
    with FakeDevice() as device, Tracer(**UNCHECKED) as tracer:
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
    with FakeDevice() as device, Tracer(debug=debug, **UNCHECKED) as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)
        for _ in range(3):
            step_on(0, hook, is_last=False)
        tracer.flush()
    assert device.events > 0
    assert device.strict_queries == []


def test_a_look_for_hangs_may_ask_from_any_thread() -> None:
    """A command's, a dump's."""
    with FakeDevice() as device, Tracer(channel=False, interval_s=3600, **UNCHECKED) as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)  # which DDP would hold
        step_on(0, hook)
        (seen,) = look(tracer.models.all(), 0)
        assert device.asked > 0
        assert device.strict_queries == []
    assert seen.step == 0
