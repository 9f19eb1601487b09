"""The loss of two real runs, beside their records, in the comparison of both."""

from __future__ import annotations

import shutil

import pytest

from hooktrace.analysis.compare.command import compare_sides
from hooktrace.analysis.compare.sentence import signed, value
from tests.distributed import loss_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_the_loss_of_two_real_runs_is_compared(two: Ranks) -> None:
    """What is read of A and B differs by what stands beside them."""
    logs, _ = two.run(loss_scenarios.two_runs)
    names = ("allreduce_hook", "quantization_pertensor_hook")
    (found,) = compare_sides([[logs / name] for name in names], None)
    shutil.rmtree(logs)
    loss = found.quantity("loss")
    assert loss is not None
    assert found.quantities[-1].title == "train/loss, later half"
    assert loss.a is not None
    assert 0 < loss.a < 1.2
    assert loss.difference is not None
    assert loss.difference == pytest.approx((loss.b or 0.0) - loss.a)
    assert 0 < abs(loss.share or 0.0) < 0.1
    assert loss.low is not None
    assert not any(text.startswith("loss") for text in found.limits)
    read = [float(value(x, "loss")) for x in (loss.a, loss.b)]
    assert read[1] - read[0] == pytest.approx(
        float(signed(loss.difference, "loss").replace("\N{MINUS SIGN}", "-")), abs=2e-4
    )
