"""A step over all ranks is the same in whatever order and groups its ranks are put together."""

from __future__ import annotations

import random
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.records.job import Range, StepSpread, merged, range_of

_times = st.none() | st.integers(0, 3)  # few, so that ranks are equal often


def of_rank(
    rank: int, period: int | None, exposed: int | None, arrival: int | None, uncertainty: int = 0
) -> StepSpread:
    return StepSpread(
        7, incomplete=rank % 2, period=range_of(period, rank), period_total_ns=period or 0,
        exposed=range_of(exposed, rank), exposed_total_ns=exposed or 0,
        arrival=range_of(arrival, rank), uncertainty_ns=uncertainty,
    )  # fmt: skip


@given(
    st.lists(st.tuples(_times, _times, _times, st.integers(0, 9)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_order_and_groups_do_not_matter(
    given: list[tuple[int | None, int | None, int | None, int]], source: random.Random
) -> None:
    """It is what all values at once say: least, most, sum; the lower rank of equal ones."""
    parts = [of_rank(rank, *one) for rank, one in enumerate(given)]
    whole = reduce(merged, parts)
    assert (whole.ranks, whole.incomplete) == (len(parts), len(parts) // 2)
    assert whole.uncertainty_ns == max(p.uncertainty_ns for p in parts)
    known = [(p.period.least_ns, rank) for rank, p in enumerate(parts) if p.period is not None]
    if known:
        least, most = min(known), min(known, key=lambda pair: (-pair[0], pair[1]))
        assert whole.period == Range(len(known), *least, *most)
        assert whole.period_mean_ns == sum(ns for ns, _ in known) / len(known)
    else:
        assert whole.period is whole.period_mean_ns is whole.slowest_rank is None
    source.shuffle(parts)
    while len(parts) > 1:
        at = source.randrange(len(parts) - 1)
        parts[at : at + 2] = [merged(parts[at], parts[at + 1])]
    assert parts == [whole]


def test_who_is_last_is_not_said_where_clocks_may_be_off_by_as_much() -> None:
    """Each of two clocks may be off."""
    first = of_rank(0, 1, 1, 1000)
    for uncertainty, last in ((49, 5), (50, None)):
        both = merged(first, of_rank(5, 1, 1, 1100, uncertainty))
        assert (both.arrival_delay_ns, both.last_rank) == (100, last)
    assert (first.arrival_delay_ns, first.last_rank) == (None, None)
