"""Which step is for what, and who is not calibrated."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hooktrace.capture.buckets import BucketSlot, ModelState
from hooktrace.probes.calibration import Calibration, Roles
from hooktrace.probes.schedule import OFF
from hooktrace.probes.step_sampler import LOOKED, CallStart
from hooktrace.records import ComputeRecord, TrialRecord
from hooktrace.testing import FakeBucket, FakeClock


class FakeSink:
    """Keeps what is pushed; 1 ms passes with each look at its clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(step_ns=1_000_000)
        self.pushed: list[Any] = []

    def push(self, record: object) -> None:
        self.pushed.append(record)


def calls_of(*sizes: int, step: int = 0) -> list[CallStart]:
    """Return the calls for buckets of so many parameters, of 4,096 elements each."""
    model = ModelState("net", "allreduce", {}, 0)
    calls = []
    for index, size in enumerate(sizes):
        parameters = [torch.zeros(4096, requires_grad=True) for _ in range(size)]
        is_last = index == len(sizes) - 1
        bucket: Any = FakeBucket(parameters, index, is_last=is_last)
        slot = model.slots[index] = BucketSlot(model, bucket, index, (index,))
        slot.is_last = is_last
        calls.append(CallStart(slot, step, 0, bucket, None))
    return calls


def test_computing_is_timed_before_between_and_after_the_trials() -> None:
    """With a step to watch from before each time, and one after, which tells the end."""
    roles = Roles(3)
    assert [roles.trial(i) for i in range(len(roles))] == (
        [None] * 5 + [0, 1, None] + [None] * 5 + [2, None] + [None] * 6
    )
    computes = [i for i in range(len(roles)) if roles.computes(i)]
    assert computes == [1, 2, 3, 4, 9, 10, 11, 12, 16, 17, 18, 19]
    assert not roles.computes(-1)


def test_a_model_on_a_device_is_not_calibrated(caplog: pytest.LogCaptureFixture) -> None:
    """The host's clock does not tell its times, so nothing is recorded."""
    (call,) = calls_of(1)
    call.slot.device_type = "cuda"
    part, sink = Calibration([], 0), FakeSink()
    with caplog.at_level(logging.WARNING, "hooktrace"):
        assert part.enter(call, sink) is None  # type: ignore[arg-type]
    assert "needs dense gradients on a CPU" in caplog.text
    assert (part.next_step, sink.pushed) == (OFF, [])


def run(part: Calibration, steps: list[int], sizes: tuple[int, ...] = (1, 2)) -> list[Any]:
    """Return what a calibration records in some steps, in which each gradient comes."""
    calls, sink = calls_of(*sizes), FakeSink()
    for step in steps:
        for call in calls:
            for parameter in call.bucket.parameters():
                parameter.sum().backward()
            if step < part.next_step:
                continue
            found = part.enter(call._replace(step=step, ready=sink.clock()), sink)  # type: ignore[arg-type]
            assert found is LOOKED or part.next_step == OFF
    parameters = [p for call in calls for p in call.bucket.parameters()]
    is_watched = any(p._post_accumulate_grad_hooks for p in parameters)  # type: ignore[attr-defined]
    assert is_watched == (part.next_step != OFF)
    return sink.pushed


def test_steps_are_counted_from_the_first_and_it_ends() -> None:
    """Twelve of them are timed, and nothing is left registered."""
    part = Calibration([], first=5)
    records = run(part, list(range(30)))
    assert {type(r) for r in records} == {ComputeRecord}
    assert [r.step for r in records] == [6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19]
    assert {len(r.parameters) for r in records} == {3}
    assert all(r.processor_ns is not None for r in records)


def test_a_rank_that_comes_late_is_watched_from_then_on() -> None:
    """A tracer that was paused, a command that took its time: its first step is not whole."""
    records = run(Calibration([], first=0), list(range(3, 30)))
    assert [r.step for r in records] == [4, *range(6, 10), *range(11, 15)]


def test_a_step_whose_successor_was_not_seen_has_no_end() -> None:
    """Its gradients are still true."""
    records = run(Calibration([], first=0), [0, 1, 7, 8, 9, 20, 21])
    assert [(r.step, r.processor_ns is None) for r in records] == [
        (1, True), (7, False), (8, False), (9, True),
    ]  # fmt: skip


def test_what_was_registered_goes_when_the_tracer_is_closed() -> None:
    """In the middle of it."""
    part = Calibration([], first=0)
    calls, sink = calls_of(1), FakeSink()
    part.enter(calls[0], sink)  # type: ignore[arg-type]
    (parameter,) = calls[0].bucket.parameters()
    assert parameter._post_accumulate_grad_hooks  # type: ignore[attr-defined]
    part.leave()
    assert not parameter._post_accumulate_grad_hooks  # type: ignore[attr-defined]
    assert part.enter(calls[0], sink) is None  # type: ignore[arg-type]
    assert TrialRecord not in map(type, sink.pushed)
