"""What of slow steps is said to take longest; which jobs they are told of is in ``golden/``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.analysis.report.facts import SlowSteps
from hooktrace.analysis.report.rules_ranks import slow_steps_cost


@pytest.mark.parametrize(
    ("exposed", "said", "fix"),
    [
        (None, "in what is not known", "what else the machine does in these steps"),
        (0.6, "mostly in communication", "(hooktrace export)"),
        (0.5, "mostly outside of communication", "data loading"),
    ],
)
def test_the_largest_part_of_slow_steps_is_named(
    exposed: float | None, said: str, fix: str
) -> None:
    slow = SlowSteps(steps=(3,), periods=30, slowest_ns=9e7, excess_ns=1e6, exposed_share=exposed)
    model: Any = SimpleNamespace(slow=slow, is_whole=True, beside=(), noun="bucket")
    (finding,) = slow_steps_cost(model)
    assert finding.sentence.endswith(f"1.00 ms a step, {said}.")
    assert fix in finding.fix
