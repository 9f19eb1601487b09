"""A factor of several probes: one of those that have a name, at three steps, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.probes.factors import FactorRun
from hooktrace.probes.probe_result import ProbeResult
from hooktrace.probes.weights import Cause
from tests.probes.fakes import bucket_of, slot_of

SLOTS = [slot_of(bucket_of((2,))) for _ in range(2)]
KINDS: dict[float, Any] = {0.0: "other", -2.0: "other", 1.0: "average", -1.0: "unknown"}
"""A factor of 1 is the average's; 0, -1 and -2 stand for zeros, nothing known and much lost."""
SUM, TWICE = "not_averaged", "averaged_twice"


@pytest.mark.parametrize(
    ("factors", "buckets", "sure", "expected"),
    [
        # The third step names it and is told of the first; later probes are told of themselves.
        ([4.0] * 4, 1, True, [(2, SUM, 0), (3, SUM, 3)]),
        ([0.25] * 4, 1, True, [(2, TWICE, 0), (3, TWICE, 3)]),
        ([4.0] * 5, 2, True, [(4, SUM, 0), (4, SUM, 0)]),
        # The average, no sum at all, or another factor end it.
        *(([4.0, 4.0, end, 4.0, 4.0], 1, True, []) for end in (1.0, 0.0, 0.5, 4.0001, 0.25)),
        ([4.0, 4.0, -1.0, 4.0], 1, True, [(3, SUM, 0)]),  # what tells nothing does not
        ([4.0, -2.0] * 3, 2, True, [(4, SUM, 0)]),  # nor what another bucket loses
        ([4.0, 0.0] * 3, 2, True, []),  # but zeros, as of a hook that waits
        ([0.4] * 9, 1, True, []),  # clipping's, or meant
        ([3.9] * 9, 1, True, []),
        # One rank's gradient over n, where ranks have the same data.
        ([0.25] * 3, 1, False, []),
        ([4.0] * 3, 1, False, [(2, SUM, 0)]),
    ],
)
def test_which_factors_have_a_name(
    factors: list[float], buckets: int, sure: bool, expected: list[tuple[int, str, int]]
) -> None:
    """After which probe a name, and of which step it is told."""
    run, told = FactorRun(), []
    for place, factor in enumerate(factors):
        cause = Cause(KINDS.get(factor, "factor"), factor, tight=1e-6, sure=sure)
        slot, step = SLOTS[place % buckets], place // buckets
        run.add(ProbeResult(slot=slot, step=step, rank=0, local=False), cause, 4)
        told += [(place, one.kind, one.step) for one in run.named()]
    assert told == expected
