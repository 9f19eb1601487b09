"""The numbers that people follow."""

from __future__ import annotations

import pytest

from hooktrace.integrations.headline import numbers_of
from hooktrace.records.summary import summarize
from tests.exporters.records_sample import make_batch


def test_the_numbers_of_a_summary() -> None:
    """In base units, by flat names; a step of the sample lasts 10 ms."""
    (summary,) = summarize(make_batch(steps=4).steps)
    numbers = numbers_of(summary)
    assert numbers["hooktrace/step_seconds"] == pytest.approx(0.01)
    assert numbers["hooktrace/exposed_seconds"] == pytest.approx(0.002)
    assert numbers["hooktrace/exposed_ratio"] == pytest.approx(0.2)
    assert numbers["hooktrace/wire_bytes"] == summary.wire_bytes
    assert all(isinstance(value, float) for value in numbers.values())
    assert set(numbers_of(summary, "x/")) == {f"x/{n.split('/')[1]}" for n in numbers}


def test_what_is_not_known_is_left_out() -> None:
    """Rather than shown as 0 or NaN."""
    (summary,) = summarize(make_batch(steps=1).steps)
    assert summary.period_p50_ns is None
    assert "hooktrace/step_seconds" not in numbers_of(summary)
    assert "hooktrace/exposed_ratio" not in numbers_of(summary)
