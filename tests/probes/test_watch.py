"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hooktrace.capture.layout import BucketSlot, ModelState
from hooktrace.probes.schedule import Occasion
from hooktrace.probes.watch import Watch
from hooktrace.testing import FakeBucket


class Sink:
    """Keeps the kinds that it is told."""

    event_pool: Any = None
    push: Any = None

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def clock(self) -> int:
        """Return a time."""
        return 0

    def note(self, anomaly: Any) -> None:
        """Keep the kind."""
        self.kinds.append(anomaly.kind)


def slot_of(bucket: FakeBucket) -> BucketSlot:
    """Return the slot of a bucket of a new model."""
    model = ModelState("net", "hook", {})
    slot = BucketSlot(model, bucket, tuple(map(id, bucket.parameters())))
    model.slots[0] = slot
    return slot


def test_results_of_a_backward_pass_that_failed_are_let_go_of() -> None:
    """Its last bucket never comes, and the next step must not hold it or speak of it."""
    bucket = FakeBucket([torch.zeros(3)], is_last=False)
    slot, watch, sink = slot_of(bucket), Watch(), Sink()
    for step in range(3):
        watch.enter(Occasion(slot, step, 0, bucket, None), sink)
    assert [watched.step for watched in watch._step] == [2]


def test_trouble_ends_debug_mode_and_not_training(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once, and nothing is looked at from then on."""
    bucket = FakeBucket([torch.zeros(3)], is_last=False)
    slot, watch, sink = slot_of(bucket), Watch(), Sink()
    monkeypatch.setattr("hooktrace.probes.watch._references", lambda tensor: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert watch.enter(Occasion(slot, 0, 0, bucket, None), sink) is None
    monkeypatch.undo()
    assert watch.enter(Occasion(slot, 1, 0, bucket, None), sink) is None
    assert [r.getMessage() for r in caplog.records] == [
        "debug checks of net end here; training goes on"
    ]


def test_a_bucket_without_elements_is_looked_at() -> None:
    """All its parameters are empty."""
    bucket = FakeBucket([torch.zeros(0)], is_last=False)
    slot, sink = slot_of(bucket), Sink()
    watched = Watch().enter(Occasion(slot, 0, 0, bucket, None), sink)
    assert watched is not None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    joined = watched.join(future)
    future.set_result(bucket.buffer())
    watched.look_again()
    assert joined.value() is bucket.buffer()
    assert sink.kinds == []
