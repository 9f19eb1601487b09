"""What of slow steps is said to take longest; which jobs they are told of is in ``golden/``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.analysis.report import rules_ranks
from hooktrace.analysis.report.facts import SlowSteps


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
        steps=(3,), periods=30, slowest_ns=9e7, excess_ns=1e6,
        exposed_excess_ns=None if exposed is None else exposed * 1e6,
        backward_excess_ns=None if backward is None else backward * 1e6,
    )  # fmt: skip
    model: Any = SimpleNamespace(
        slow=slow, is_whole=True, is_sharded=False, beside=(), hook="fp16_compress_hook"
    )
    (finding,) = rules_ranks.slow_steps_cost(model, None)
    assert finding.sentence.endswith(f"1.00 ms a step, {said}.")
    assert ("compress stage" in finding.remedy) == ("in backward" in said)
    assert ("(hooktrace export)" in finding.remedy) == ("in communication" in said)
    model.hook = "ddp_allreduce"  # DDP's own, which compresses nothing
    (finding,) = rules_ranks.slow_steps_cost(model, None)
    assert "compress" not in finding.remedy


def test_shares_of_two_ranks_leave_no_rest() -> None:
    """Medians over ranks may come to more than all of it."""
    assert rules_ranks.rest_of(0.55 + 0.52) == "each at its median rank, so that they overlap"
    assert rules_ranks.rest_of(0.9) == "the rest outside of both"
