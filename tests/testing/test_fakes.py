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


def test_a_buckets_gradients_are_views_of_its_buffer() -> None:
    """In the parameters' shapes and order, also of another buffer."""
    bucket = FakeBucket([torch.zeros(2, 3), torch.zeros(4)], index=2, is_last=False)
    assert (bucket.index(), bucket.is_last()) == (2, False)
    bucket.set_buffer(torch.arange(10.0))
    matrix, vector = bucket.gradients()
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3))
    vector.fill_(-1)
    assert bucket.buffer()[6:].tolist() == [-1.0] * 4
