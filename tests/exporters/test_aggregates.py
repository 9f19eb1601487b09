"""What adds up, is replaced, is forgotten."""

from __future__ import annotations

from hooktrace.exporters.aggregates import Aggregates, Distribution
from hooktrace.records.metrics import BUCKET_SIZE, EXPOSED, REBUILD

NET = ("net", "hook")


def test_a_histogram_counts_by_inclusive_bounds_and_knows_its_extremes() -> None:
    """A value on a bound belongs to the bucket that ends there; the last one has no bound."""
    aggregates = Aggregates()
    aggregates.add([(EXPOSED, [NET] * 4, [0.001, 0.0011, 999.0, 0.0])])
    counts = [0] * (len(EXPOSED.buckets) + 1)
    for bound, count in ((0.00005, 1), (0.001, 1), (0.0025, 1)):
        counts[EXPOSED.buckets.index(bound)] = count
    counts[-1] = 1
    expected = Distribution(counts, 0.001 + 0.0011 + 999.0 + 0.0, least=0.0, most=999.0)
    assert aggregates.family(EXPOSED).distributions == {NET: expected}


def test_a_new_rebuild_forgets_the_sizes_of_the_old_one() -> None:
    """Of its own model alone."""
    aggregates = Aggregates()
    other = ("other", "hook")
    aggregates.add([(BUCKET_SIZE, [(*model, "0") for model in (NET, other)], [1, 1])])
    aggregates.add([(REBUILD, [NET], [1]), (BUCKET_SIZE, [(*NET, "1")], [2])])
    assert aggregates.family(BUCKET_SIZE).values == {(*other, "0"): 1, (*NET, "1"): 2}
