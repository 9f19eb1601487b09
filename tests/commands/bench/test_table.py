"""The benchmark's verdicts: a row is over its budget only where the noise does not explain it."""

from __future__ import annotations

import random

import pytest

from hooktrace.commands.bench.table import Row, _number


@pytest.mark.slow
def test_the_interval_covers_the_median_in_95_cases_of_100() -> None:
    """Of a skewed distribution whose median is known, for few samples and for many."""
    source = random.Random(0)
    true_median = 1.0  # of exp(normal)
    for count in (8, 40, 400):
        hits = 0
        for _ in range(2000):
            row = Row("x", [source.lognormvariate(0, 1) for _ in range(count)], "s")
            least, most = row.interval
            hits += least <= true_median <= most
        # Ranks are whole numbers, so the interval is never narrower than promised.
        assert 0.95 <= hits / 2000 <= 0.999, count


@pytest.mark.parametrize(
    ("values", "budget", "verdict"),
    [
        ([1.0] * 20, None, "-"),
        ([1.0] * 20, 1.0, "ok"),
        ([1.01] * 20, 1.0, "over"),
        ([0.8] * 9 + [1.1] * 11, 1.0, "noise"),
        ([0.8] * 3 + [1.1] * 17, 1.0, "over"),
        ([0.8] * 30 + [1.1] * 70, 1.0, "over"),
        ([2.0], 1.0, "over"),
    ],
)
def test_verdict(values: list[float], budget: float | None, verdict: str) -> None:
    """Over only where the whole interval is."""
    assert Row("x", values, "ratio", budget=budget).verdict == verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3694.2, "3694"),
        (100.4, "100"),
        (99.96, "100"),
        (16.83, "16.8"),
        (0.0, "0"),
        (-0.00781, "-0.008"),
    ],
)
def test_numbers_are_written_out(value: float, text: str) -> None:
    """No powers of ten, which would be wider than their column."""
    assert _number(value) == text
