"""Hooks, probes and debug checks on a device: none waits for it, none lets go too early."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace import Tracer

from .fake_device import FakeDevice
from .hook_table import HOOKS, fake_parameters, training

STEPS = 6
CHECKED = [1, 2, 3, 4, 5]
ALONE: dict[str, Any] = {"align_clocks": False, "run_id": "fake"}
UNCHECKED: dict[str, Any] = {"error_every": 0}
LOOKS: dict[str, Any] = {"error_every": 1, "error_all_buckets": True, "debug": True}

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
    with FakeDevice() as device, Tracer(**ALONE, **(options or UNCHECKED)) as tracer:
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
        with FakeDevice() as device, Tracer(**ALONE, **options) as tracer:
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
    for options in ({"error_every": 0}, {"error_every": 1, "error_all_buckets": True}):
        with FakeDevice() as device, Tracer(**ALONE, **options) as tracer:
            run = training("fp16", fake_parameters(), tracer, device.end_backward)
            run(CHECKED[0])
            monkeypatch.setattr(f"{owner}.{name}", fails)
            run(1)
            monkeypatch.undo()
            issued.append(device.collectives)
            tracer.flush()
            assert set(tracer.losses()) == ({"check_failed"} if options["error_every"] else set())
    assert issued[0] == issued[1]
