"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hooktrace.probes.debug_checks import DebugChecks
from tests.probes.fakes import Sink, bucket_of, future_of, slot_of, start_of


def kinds_of(sink: Any) -> list[str]:
    """Return the kinds of anomalies that were pushed."""
    for found in sink.pushed:
        found.read()
    return [anomaly.kind for found in sink.pushed for anomaly in found.anomalies()]


def test_results_of_a_backward_pass_that_failed_are_let_go_of() -> None:
    """Its last bucket never comes, and the next step must not hold it or speak of it."""
    bucket = bucket_of((3,))
    slot, checks, sink = slot_of(bucket), DebugChecks(), Sink()
    for step in range(3):
        checks.enter(start_of(slot, step, bucket), sink)
    assert [checked.step for checked in checks._step] == [2]


def test_trouble_ends_debug_mode_and_not_training(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once, and nothing is looked at from then on."""
    bucket = bucket_of((3,))
    slot, checks, sink = slot_of(bucket), DebugChecks(), Sink()
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr("hooktrace.probes.debug_checks.finite_parts", lambda *_: 1 / 0)
        assert checks.enter(start_of(slot, 0, bucket), sink)
    assert not checks.enter(start_of(slot, 1, bucket), sink)
    assert [r.getMessage() for r in caplog.records] == [
        "debug checks of net end here; training goes on"
    ]


def test_a_bucket_without_elements_is_looked_at() -> None:
    """All its parameters are empty."""
    bucket, sink, checks = bucket_of((0,)), Sink(), DebugChecks()
    start = start_of(slot_of(bucket), 0, bucket)
    assert checks.enter(start, sink)
    assert start.looks[0].join(future_of(bucket.buffer())).value() is bucket.buffer()
    checks._step[0].look_again()
    assert kinds_of(sink) == []


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
    bucket, sink = bucket_of((2,), (3,)), Sink()
    bucket.buffer()[3] = before
    with Race(bucket.buffer(), 2, after):
        start = start_of(slot_of(bucket), 0, bucket)
        assert DebugChecks().enter(start, sink)
        start.looks[0].join(future_of(torch.full((5,), float("nan"))))
    assert bucket.buffer().isnan().all() == (after != 0.0)
    assert kinds_of(sink) == kinds
