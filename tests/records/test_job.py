"""A step over all ranks is the same in whatever order and groups its ranks are put together."""

from __future__ import annotations

import random
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.records.job import Range, StepSpread, merged, range_of

_times = st.none() | st.integers(0, 3)  # few, so that ranks are equal often


@st.composite
def _of_ranks(draw: st.DrawFn) -> list[StepSpread]:
    return [
        of_rank(rank, draw(_times), draw(_times), draw(_times), draw(st.integers(0, 9)))
        for rank in range(draw(st.integers(1, 8)))
    ]


def of_rank(
    rank: int, period: int | None, exposed: int | None, arrival: int | None, uncertainty: int = 0
) -> StepSpread:
    return StepSpread(
        7,
        incomplete=rank % 2,
        period=range_of(period, rank),
        period_total_ns=period or 0,
        exposed=range_of(exposed, rank),
        exposed_total_ns=exposed or 0,
        arrival=range_of(arrival, rank),
        uncertainty_ns=uncertainty,
    )


@given(_of_ranks(), st.randoms(use_true_random=False))
def test_order_and_groups_do_not_matter(parts: list[StepSpread], source: random.Random) -> None:
    """Two that are next to each other are put together, again and again."""
    expected = reduce(merged, parts)
    source.shuffle(parts)
    while len(parts) > 1:
        at = source.randrange(len(parts) - 1)
        parts[at : at + 2] = [merged(parts[at], parts[at + 1])]
    assert parts == [expected]


@given(_of_ranks())
def test_it_is_what_all_values_say(parts: list[StepSpread]) -> None:
    """Least, most and sum of all values at once; the lower rank of equal ones."""
    whole = reduce(merged, parts)
    known = [(p.period.least_ns, rank) for rank, p in enumerate(parts) if p.period is not None]
    if known:
        least, most = min(known), min(known, key=lambda pair: (-pair[0], pair[1]))
        assert whole.period == Range(len(known), *least, *most)
        assert whole.period_mean_ns == sum(ns for ns, _ in known) / len(known)
    else:
        assert whole.period is whole.period_mean_ns is whole.slowest_rank is None
    assert whole.ranks == len(parts)
    assert whole.incomplete == len(parts) // 2
    assert whole.uncertainty_ns == max(p.uncertainty_ns for p in parts)


def test_who_is_last_is_not_said_where_clocks_may_be_off_by_as_much() -> None:
    """Each of two clocks may be off."""
    sure = merged(of_rank(0, 1, 1, 1000), of_rank(5, 1, 1, 1100, 49))
    assert (sure.arrival_delay_ns, sure.last_rank) == (100, 5)
    unsure = merged(of_rank(0, 1, 1, 1000), of_rank(5, 1, 1, 1100, 50))
    assert (unsure.arrival_delay_ns, unsure.last_rank) == (100, None)
    alone = of_rank(0, 1, 1, 1000)
    assert (alone.arrival_delay_ns, alone.last_rank) == (None, None)
