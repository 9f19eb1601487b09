"""What each call of one wait exposes."""

from __future__ import annotations

import doctest
import random

from hooktrace.records.intervals import union_ns
from hooktrace.tracing import unit_exposed
from hooktrace.tracing.unit_exposed import exposed_of


def test_the_examples_are_right() -> None:
    """As they stand in the docstring."""
    assert doctest.testmod(unit_exposed).failed == 0


def test_the_sum_is_the_time_with_a_call_under_way() -> None:
    """Since the wait began; and nobody has more than was under way."""
    source = random.Random(0)
    for _ in range(300):
        begins = [source.randrange(50) for _ in range(source.randrange(6))]
        spans = [(begin, begin + source.randrange(30)) for begin in begins]
        wait = source.randrange(60)
        left = [(max(begin, wait), max(end, wait)) for begin, end in spans]
        found = exposed_of(spans, wait)
        assert sum(found) == union_ns(left)
        for exposed, (begin, end) in zip(found, left, strict=True):
            assert 0 <= exposed <= end - begin


def test_overlapping_time_is_of_the_call_that_ends_first() -> None:
    """In whatever order they are given."""
    spans = [(40, 100), (50, 60), (60, 150)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        found = exposed_of([spans[i] for i in order], 30)
        assert [found[order.index(i)] for i in range(3)] == [50, 10, 50]
