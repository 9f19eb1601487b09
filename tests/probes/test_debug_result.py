"""What flags say, once they have come: which anomaly, of which parameter, or none."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from hooktrace.probes.debug_result import DebugResult
from hooktrace.staging.devices import EventPool
from tests.probes.fakes import bucket_of, slot_of

GOOD, BAD = [True, True], [True, False]


def anomalies_of(**flags: list[bool] | bool) -> list[tuple[str, str | None, int]]:
    """Return kind, parameter and time of what is wrong."""
    return [(one.kind, one.parameter, one.time_ns) for one in result_of(**flags).anomalies()]


def result_of(*, scaled: bool = False, **flags: list[bool] | bool) -> DebugResult:
    """Return what flags have come of a look."""
    result = DebugResult(slot=slot_of(bucket_of((3,), (2,))), step=4, time_ns=99, scaled=scaled)
    result.send(EventPool(), {name: torch.tensor(flag) for name, flag in flags.items()})
    assert result.has_arrived()
    result.read()
    return result


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gradients": GOOD}, []),
        ({"gradients": BAD}, [("nonfinite_gradient", "0.1", 99)]),
        ({"gradients": GOOD, "result": GOOD}, []),
        ({"gradients": GOOD, "result": BAD}, [("nonfinite_average", "0.1", 99)]),
        ({"gradients": BAD, "result": BAD}, []),
        ({"changed": False}, []),
        ({"changed": True}, [("changed_after_completion", None, 99)]),
    ],
)
def test_what_is_said(
    flags: dict[str, list[bool] | bool], expected: list[tuple[str, str | None, int]]
) -> None:
    """Of a result only what this rank's gradients do not explain: those were told of before."""
    assert anomalies_of(**flags) == expected


@pytest.mark.parametrize(
    ("flags", "scaled", "expected"),
    [
        ({"gradients": BAD}, True, ["nonfinite_gradient"]),
        ({"gradients": BAD, "result": BAD}, True, []),
        ({"gradients": BAD, "result": GOOD}, False, ["nonfinite_gradient"]),
        ({"changed": True}, True, ["changed_after_completion"]),
    ],
)
def test_what_a_loss_scaler_sees(
    flags: dict[str, list[bool] | bool],
    scaled: bool,
    expected: list[str],
) -> None:
    """Not what a hook has hidden from it: that step is not left out."""
    into = mock.Mock()
    result = result_of(scaled=True, **flags)
    result.arrive(into)
    (_, anomalies), _ = into.add_found.call_args
    assert result.scaled == scaled
    assert [anomaly.kind for anomaly in anomalies] == expected
