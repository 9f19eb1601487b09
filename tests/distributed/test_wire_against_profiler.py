"""Wire stages are true: the queue model against what gloo's own threads report."""

from __future__ import annotations

import pytest

from hooktrace.bench.wire import compare_on_two_ranks
from hooktrace.summary import percentile


def test_wire_stages_match_the_profiler(capsys: pytest.CaptureFixture[str]) -> None:
    """On both ranks the median difference is at most 2 % of the duration, or 100 µs if more."""
    for rank, comparison in enumerate(compare_on_two_ranks(15, deadline_s=120)):
        with capsys.disabled():
            print(f"\nrank {rank}: {comparison.describe()}")  # noqa: T201  # medians are reported
        assert len(comparison.event_ns) >= 45
        median = percentile(comparison.differences_ns(comparison.wire_ns), 0.5)
        assert median <= comparison.allowed_ns
