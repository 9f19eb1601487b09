"""Stand-ins behave as what they stand for."""

from __future__ import annotations

import torch

from hooktrace.testing import FakeBucket, FakeClock


def test_a_clock_counts() -> None:
    """Each reading is a step after the one before."""
    clock = FakeClock(10, step_ns=5)
    assert [clock(), clock()] == [10, 15]
    clock.advance(100)
    assert clock() == 120


def test_a_buckets_gradients_are_zero() -> None:
    """As many as the parameters have elements, of their dtype."""
    bucket = FakeBucket([torch.ones(2, 3, dtype=torch.float16), torch.ones(4)], index=2)
    assert (bucket.index(), bucket.is_last(), bucket.buffer().dtype) == (2, True, torch.float16)
    assert bucket.buffer().tolist() == [0.0] * 10
