"""Wire stages are true: the queue model against what gloo's own threads report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.benchmarks.wire import ALL, BARE, WireComparison, compare_on_two_ranks

pytestmark = [pytest.mark.slow, pytest.mark.long]

Compared = dict[str, Sequence[WireComparison]]


@pytest.fixture(scope="module")
def compared() -> Compared:
    """Both ranks' collectives of 15 steps, by hook."""
    return compare_on_two_ranks(15, deadline_s=240)


@pytest.mark.parametrize("hook", BARE)
def test_wire_stages_match_the_profiler(compared: Compared, hook: str) -> None:
    """They end with the profiler's events, and begin when a worker is free for them.

    A woken worker may wait for a core before its event begins, milliseconds where other tests run
    beside this one: no stamp shows that, and it is in the wire stage.  What it comes to on a quiet
    machine the benchmark measures.
    """
    for comparison in compared[hook]:
        assert len(comparison.event_ns) >= 45
        ended = abs(comparison.arrived - comparison.released)
        assert np.median(ended) <= comparison.allowed_ns
        # Between launch and event: what the queue model takes off is never too much.
        assert (comparison.issued <= comparison.started).all()
        assert (comparison.started - comparison.began).max() <= comparison.allowed_ns


@pytest.mark.parametrize("hook", ALL)
def test_workers_are_free_when_their_callback_ends(compared: Compared, hook: str) -> None:
    """The sum of wire stages is that of the same model with the profiler's own release times."""
    for comparison in compared[hook]:
        assert comparison.wire_sum_over(comparison.modelled) == pytest.approx(1, abs=0.02)
