"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging

import pytest

from hooktrace.probes.debug_checks import DebugChecks
from tests.probes.fakes import Sink, bucket_of, future_of, slot_of, start_of


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
    for found in sink.pushed:
        found.read()
    assert [anomaly for found in sink.pushed for anomaly in found.anomalies()] == []
