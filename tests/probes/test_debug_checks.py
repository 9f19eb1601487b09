"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hooktrace.probes.debug_checks import CheckedCall, DebugChecks
from hooktrace.probes.debug_result import DebugResult
from hooktrace.probes.step_sampler import CallStart
from hooktrace.staging.slots import BucketSlot, ModelState
from hooktrace.testing import FakeBucket


class Sink:
    """Keeps the kinds that it is told."""

    event_pool: Any = None

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def clock(self) -> int:
        return 0

    def push(self, entry: Any) -> None:
        if isinstance(entry, DebugResult):
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
        assert checks.enter(CallStart(slot, 0, 0, bucket, None), sink)
    monkeypatch.undo()
    assert not checks.enter(CallStart(slot, 1, 0, bucket, None), sink)
    assert [r.getMessage() for r in caplog.records] == [
        "debug checks of net end here; training goes on"
    ]


def test_a_bucket_without_elements_is_looked_at() -> None:
    """All its parameters are empty."""
    bucket = FakeBucket([torch.zeros(0)], is_last=False)
    slot, sink = slot_of(bucket), Sink()
    start = CallStart(slot, 0, 0, bucket, None)
    assert DebugChecks().enter(start, sink)
    (checked,) = start.looks
    assert isinstance(checked, CheckedCall)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    joined = checked.join(future)
    future.set_result(bucket.buffer())
    checked.look_again()
    assert joined.value() is bucket.buffer()
    assert sink.kinds == []


class Race(TorchDispatchMode):
    """Writes into a tensor once each of so many parts was found finite or not."""

    def __init__(self, tensor: torch.Tensor, parts: int, value: float) -> None:
        super().__init__()
        self._tensor, self._parts, self._value = tensor, parts, value

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.all.default:
            self._parts -= 1
            if not self._parts:
                self._tensor.fill_(self._value)
        return out


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (float("nan"), 0.0, ["nonfinite_gradient"]),
        (0.0, float("nan"), ["nonfinite_average"]),
    ],
)
def test_gradients_that_another_thread_writes_to_are_read_once(
    before: float, after: float, kinds: list[str]
) -> None:
    """What is said of them is what one look has seen, and of the result that it is not finite."""
    bucket = FakeBucket([torch.zeros(2), torch.zeros(3)], is_last=False)
    bucket.buffer()[3] = before
    slot, sink = slot_of(bucket), Sink()
    with Race(bucket.buffer(), 2, after):
        start = CallStart(slot, 0, 0, bucket, None)
        assert DebugChecks().enter(start, sink)
        (checked,) = start.looks
        assert isinstance(checked, CheckedCall)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        checked.join(future)
        future.set_result(torch.full((5,), float("nan")))
    assert bucket.buffer().isnan().all() == (after != 0.0)
    assert sink.kinds == kinds
