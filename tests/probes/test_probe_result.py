"""What a probe hands over: whose overflow it was, and what is not compared."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from hooktrace.probes.probe_result import ProbeResult, StepChecksums
from tests.probes.fakes import Sink, bucket_of, slot_of
from tests.probes.test_probe import Probed


@pytest.mark.parametrize(
    ("bad", "came_in", "expected"),
    [
        ({}, None, None),
        ({0: inf, 5: nan}, None, ("0.0", 1.0)),
        ({3: -inf}, None, ("0.0", 1.0)),
        ({4: nan}, None, ("0.1", 1.0)),
        ({0: inf, 4: nan}, 1, ("0.1", 1.0)),
        ({0: inf}, 0, None),
    ],
)
def test_an_overflow_is_of_the_first_parameter_that_was_finite(
    bad: dict[int, float], came_in: int | None, expected: tuple[str, float] | None
) -> None:
    """Where the reference of a parameter has NaN or inf itself, it is not the hook's doing."""
    result = torch.ones(6)
    for place, value in bad.items():
        result[place] = value
    checked = Probed(result)
    if came_in is not None:
        checked.probe._reference[came_in] = inf
    checked.complete()
    assert checked.found.overflow == expected


def test_checksums_of_different_buckets_are_not_compared() -> None:
    """As where a probe of one rank has failed: its results may be the same as the others'."""
    sums = torch.ones(2, dtype=torch.int64)
    one, other = (StepChecksums(3, dict.fromkeys(buckets, sums)) for buckets in ((0, 1), (0,)))
    assert one.identity == StepChecksums(3, dict.fromkeys((1, 0), sums)).identity
    for identities, known in (((one, one), True), ((one, other), False)):
        found = ProbeResult(slot=slot_of(bucket_of((2,))), step=4, rank=0, local=False)
        rows = torch.tensor([[5, 6, each.identity] for each in identities])
        found.push(Sink(), checksums=rows)  # type: ignore[arg-type]
        found.read()
        assert (found.checksums is not None) == known
