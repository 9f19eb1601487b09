"""What flags say, once they have come: which anomaly, of which parameter, or none."""

from __future__ import annotations

from collections.abc import Iterable
from unittest import mock

import pytest
import torch

from hooktrace.probes.debug_result import DebugResult
from hooktrace.records import AnomalyRecord
from hooktrace.staging.devices import EventPool
from tests.probes.fakes import bucket_of, slot_of

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
    """Of a result what this rank's gradients do not explain: those were told of before.

    A scaler does not see what a hook has hidden from it: that step is not left out.
    """
    anomalies = [(*one, 99) for one in told]
    assert said(result_of(**flags).anomalies()) == (anomalies if scaled else [])
    result, into = result_of(scaled=True, **flags), mock.Mock()
    result.arrive(into)
    (_, found), _ = into.add_found.call_args
    assert said(found) == anomalies
    assert result.scaled == scaled


def said(anomalies: Iterable[AnomalyRecord]) -> list[tuple[str, str | None, int]]:
    return [(one.kind, one.parameter, one.time_ns) for one in anomalies]
