"""What adds up, is replaced, is forgotten."""

from __future__ import annotations

from hooktrace.exporters.aggregates import Aggregates, Distribution, Family
from hooktrace.records.metrics import (
    BUCKET_SIZE,
    EXPOSED,
    GENERATION,
    JOB_RANKS,
    RECORDS_LOST,
    STEPS,
)

NET = ("net", "hook")


def test_counters_add_up_and_totals_so_far_replace() -> None:
    """A loss that every batch reports again is counted once."""
    aggregates = Aggregates()
    for lost in (3, 3, 5):
        aggregates.add([(STEPS, [NET], [1]), (RECORDS_LOST, [("late",)], [lost])])
    assert aggregates.family(STEPS).values == {NET: 3}
    assert aggregates.family(RECORDS_LOST).values == {("late",): 5}
    assert [family.metric for family in aggregates.snapshot()] == [STEPS, RECORDS_LOST]


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


def test_a_new_generation_forgets_the_sizes_of_the_old_one() -> None:
    """Of its own model alone."""
    aggregates = Aggregates()
    other = ("other", "hook")
    aggregates.add([(BUCKET_SIZE, [(*model, "0") for model in (NET, other)], [1, 1])])
    aggregates.add([(GENERATION, [NET], [1]), (BUCKET_SIZE, [(*NET, "1")], [2])])
    assert aggregates.family(BUCKET_SIZE).values == {(*other, "0"): 1, (*NET, "1"): 2}


def test_what_two_tracers_counted_adds_up_and_a_gauge_is_the_last_one() -> None:
    found = {metric: Family(metric) for metric in (STEPS, JOB_RANKS, EXPOSED)}
    both = Aggregates()
    for number in (1, 3):
        columns = [
            (STEPS, [NET], [number]),
            (JOB_RANKS, [()], [number]),
            (EXPOSED, [NET], [number]),
        ]
        tracer = Aggregates()
        for aggregates in (tracer, both):
            aggregates.add(columns)
        for family in tracer.snapshot():
            found[family.metric].include(family)
    assert found == {metric: both.family(metric) for metric in found}
