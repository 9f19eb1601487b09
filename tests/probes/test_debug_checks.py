"""Debug mode where no real bucket is needed; the rest is in ``tests/distributed/test_debug.py``."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from unittest import mock

import pytest
import torch

from hooktrace.probes.debug_checks import DebugChecks, DebugResult
from hooktrace.records import AnomalyRecord
from hooktrace.staging.devices import EventPool
from tests.probes.fakes import Sink, bucket_of, slot_of, start_of


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


GOOD, BAD = [True, True], [True, False]


def result_of(*, scaled: bool = False, **flags: list[bool] | bool) -> DebugResult:
    """Return what flags have come of a look."""
    result = DebugResult(slot=slot_of(bucket_of((3,), (2,))), step=4, time_ns=99, scaled=scaled)
    result.send(EventPool(), {name: torch.tensor(flag) for name, flag in flags.items()})
    assert result.has_arrived()
    result.read()
    return result


@pytest.mark.parametrize(
    ("flags", "told", "scaled"),
    [
        ({"gradients": GOOD}, [], True),
        ({"gradients": BAD}, [("nonfinite_gradient", "0.1")], True),
        ({"gradients": GOOD, "result": GOOD}, [], True),
        ({"gradients": GOOD, "result": BAD}, [("nonfinite_average", "0.1")], True),
        ({"gradients": BAD, "result": BAD}, [], True),
        ({"gradients": BAD, "result": GOOD}, [("nonfinite_gradient", "0.1")], False),
        ({"changed": False}, [], True),
        ({"changed": True}, [("changed_after_completion", None)], True),
    ],
)
def test_what_is_said_and_what_a_loss_scaler_sees(
    flags: dict[str, list[bool] | bool], told: list[tuple[str, str | None]], scaled: bool
) -> None:
    """Of a result what this rank's gradients do not explain: those were told of before."""
    anomalies = [(*one, 99) for one in told]
    assert said(result_of(**flags).anomalies()) == (anomalies if scaled else [])
    result, into = result_of(scaled=True, **flags), mock.Mock()
    result.arrive(into)
    (_, found), _ = into.add_found.call_args
    assert said(found) == anomalies
    assert result.scaled == scaled


def said(anomalies: Iterable[AnomalyRecord]) -> list[tuple[str, str | None, int]]:
    return [(one.kind, one.parameter, one.time_ns) for one in anomalies]
