"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hooktrace.capture.buckets import BucketSlot, ModelState
from hooktrace.probes.check_result import CheckResult
from hooktrace.probes.debug_checks import DebugChecks
from hooktrace.probes.step_sampler import CallStart
from hooktrace.testing import FakeBucket


class Sink:
    """Keeps the kinds that it is told."""

    event_pool: Any = None

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def clock(self) -> int:
        """Return a time."""
        return 0

    def push(self, entry: Any) -> None:
        """Keep the kinds of what is wrong."""
        if isinstance(entry, CheckResult):
            entry.read()
            self.kinds += [anomaly.kind for anomaly in entry.anomalies()]
        else:
            self.kinds.append(entry.kind)


def slot_of(bucket: FakeBucket) -> BucketSlot:
    """Return the slot of a bucket of a new model."""
    model = ModelState("net", "hook", {}, 0)
    slot = BucketSlot(model, bucket, bucket.index(), tuple(map(id, bucket.parameters())))
    slot.is_last = bucket.is_last()
    model.slots[0] = slot
    return slot


def test_results_of_a_backward_pass_that_failed_are_let_go_of() -> None:
    """Its last bucket never comes, and the next step must not hold it or speak of it."""
    bucket = FakeBucket([torch.zeros(3)], is_last=False)
    slot, checks, sink = slot_of(bucket), DebugChecks(), Sink()
    for step in range(3):
        checks.enter(CallStart(slot, step, 0, bucket, None), sink)
    assert [checked.step for checked in checks._step] == [2]


def test_trouble_ends_debug_mode_and_not_training(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once, and nothing is looked at from then on."""
    bucket = FakeBucket([torch.zeros(3)], is_last=False)
    slot, checks, sink = slot_of(bucket), DebugChecks(), Sink()
    monkeypatch.setattr("hooktrace.probes.debug_checks.references", lambda tensor: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert checks.enter(CallStart(slot, 0, 0, bucket, None), sink) is None
    monkeypatch.undo()
    assert checks.enter(CallStart(slot, 1, 0, bucket, None), sink) is None
    assert [r.getMessage() for r in caplog.records] == [
        "debug checks of net end here; training goes on"
    ]


def test_a_bucket_without_elements_is_looked_at() -> None:
    """All its parameters are empty."""
    bucket = FakeBucket([torch.zeros(0)], is_last=False)
    slot, sink = slot_of(bucket), Sink()
    checked = DebugChecks().enter(CallStart(slot, 0, 0, bucket, None), sink)
    assert checked is not None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    joined = checked.join(future)
    future.set_result(bucket.buffer())
    checked.look_again()
    assert joined.value() is bucket.buffer()
    assert sink.kinds == []
