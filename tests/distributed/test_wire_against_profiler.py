"""Wire stages are true: the queue model against what gloo's own threads report."""

from __future__ import annotations

import pytest

from hooktrace.commands.bench.wire import compare_on_two_ranks
from hooktrace.records.summary import percentile

pytestmark = pytest.mark.slow


def test_wire_stages_match_the_profiler(capsys: pytest.CaptureFixture[str]) -> None:
    """The median difference is at most 2 % or 100 µs, and all are less than without the model."""
    for rank, comparison in enumerate(compare_on_two_ranks(15, deadline_s=120)):
        with capsys.disabled():
            print(f"\nrank {rank}: {comparison.describe()}")  # noqa: T201  # medians are reported
        assert len(comparison.event_ns) >= 45
        wire = comparison.differences_ns(comparison.wire_ns)
        assert percentile(wire, 0.5) <= comparison.allowed_ns
        # Most collectives find a free worker, so the median alone holds without a queue model too.
        assert sum(wire) < sum(comparison.differences_ns(comparison.naive_ns))
