"""A bucket that DDP did not make does what DDP's do."""

from __future__ import annotations

import torch

from hooktrace.capture.flat_bucket import FlatBucket


def test_gradients_are_views_of_the_buffer() -> None:
    """In the parameters' shapes and order, also of another buffer."""
    bucket = FlatBucket([torch.zeros(2, 3), torch.zeros(4)], torch.zeros(10), 2, False)
    assert (bucket.index(), bucket.is_last(), len(bucket.parameters())) == (2, False, 2)
    bucket.set_buffer(torch.arange(10.0))
    matrix, vector = bucket.gradients()
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3))
    vector.fill_(-1)
    assert bucket.buffer()[6:].tolist() == [-1.0] * 4
