"""What of slow steps is said to take longest; which jobs they are told of is in ``golden/``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.analysis.report.facts import SlowSteps
from hooktrace.analysis.report.rules_ranks import slow_steps_cost


@pytest.mark.parametrize(
    ("exposed", "backward", "said"),
    [
        (0.49, 0.41, "the largest part in communication"),
        (None, None, "in what is not known"),
        (None, 0.4, "in what is not known"),
        (0.6, None, "mostly in communication"),
        (0.2, 0.45, "the largest part in backward"),
        (0.3, 0.3, "the largest part outside of backward and communication"),
        (0.7, 0.6, "mostly in communication"),
        (0.1, 0.1, "mostly outside of backward and communication"),
    ],
)
def test_the_largest_part_of_slow_steps_is_named(
    exposed: float | None, backward: float | None, said: str
) -> None:
    """What neither is in communication nor in backward may be the least of all."""
    slow = SlowSteps(
        steps=(3,), periods=30, slowest_ns=9e7, excess_ns=1e6, exposed_share=exposed,
        backward_share=backward,
    )  # fmt: skip
    model: Any = SimpleNamespace(
        slow=slow, is_whole=True, is_sharded=False, beside=(), hook="fp16_compress_hook",
        noun="bucket",
    )  # fmt: skip
    (finding,) = slow_steps_cost(model)
    assert finding.sentence.endswith(f"1.00 ms a step, {said}.")
    assert ("compress stage" in finding.remedy) == ("in backward" in said)
    assert ("(hooktrace export)" in finding.remedy) == ("in communication" in said)
    # Medians over ranks may come to more than all of it.
    overlap = (exposed or 0) + (backward or 0) > 1
    assert ("so that they overlap" in finding.evidence[1]) == overlap
    model.hook = "ddp_allreduce"  # DDP's own, which compresses nothing
    (finding,) = slow_steps_cost(model)
    assert "compress" not in finding.remedy
