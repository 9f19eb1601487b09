"""Columns: a period is its own step's, and numbers take half the memory where that holds all."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hooktrace.analysis.run.columns import UNKNOWN, packed
from tests.analysis.run.files import run_of, text_of
from tests.analysis.run.test_read import track_of
from tests.exporters.records_sample import STEP_NS, make_step


def test_a_bucket_of_seconds_keeps_its_nanoseconds() -> None:
    """Columns take half the memory only where that holds all values."""
    step, (first, second) = make_step(1)
    slow = replace(second, done_ns=second.ready_ns + 9_000_000_001)
    track = track_of(text_of(run_of(0), [(step, (first, slow))]))
    assert track.buckets.done.tolist() == [first.done_ns, slow.done_ns]
    assert (packed(np.array([2**31 - 1])).itemsize, packed(np.array([2**31])).itemsize) == (4, 8)
    assert packed(np.array([-(2**31), -(2**31) - 1])).tolist() == [-(2**31), -(2**31) - 1]


def test_a_period_is_its_own_steps() -> None:
    """The next step of the model says it, in any order of lines; the last one's is not known."""
    steps = [make_step(i) for i in (1, 3, 2, 5)]
    other = replace(make_step(2)[0], model="other", previous_period_ns=7), ()
    columns = track_of(text_of(run_of(0), [*steps, other])).steps
    assert columns.step.tolist() == [1, 3, 2, 5, 2]
    assert columns.period.tolist() == [STEP_NS, UNKNOWN, STEP_NS, UNKNOWN, UNKNOWN]
