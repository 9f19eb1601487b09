"""The median of the last numbers against all of them sorted."""

from __future__ import annotations

import random

from hooktrace.records.running_median import RunningMedian


def test_the_median_of_the_last_numbers_once_there_are_enough() -> None:
    """The upper one of the two in the middle; what is older does not count."""
    numbers = [random.Random(0).randrange(100) for _ in range(50)]
    running, found = RunningMedian(last=7, enough=3), []
    for number in numbers:
        running.add(number)
        found.append(running.median)
    assert found[:2] == [None, None]
    lasts = [sorted(numbers[max(0, i - 6) : i + 1]) for i in range(2, 50)]
    assert found[2:] == [last[len(last) // 2] for last in lasts]
