"""A bucket that DDP did not make does what DDP's do."""

from __future__ import annotations

import torch

from hooktrace.capture.flat_bucket import FlatBucket, Payload, Shape


def test_gradients_are_views_of_the_buffer() -> None:
    """In the parameters' shapes and order, also of another buffer."""
    bucket = FlatBucket([torch.zeros(2, 3), torch.zeros(4)], torch.zeros(10), 2, False)
    assert (bucket.index(), bucket.is_last(), len(bucket.parameters())) == (2, False, 2)
    bucket.set_buffer(torch.arange(10.0))
    matrix, vector = bucket.gradients()
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3))
    vector.fill_(-1)
    assert bucket.buffer()[6:].tolist() == [-1.0] * 4


def test_a_payload_has_shapes_for_parameters() -> None:
    """Which are told apart where they are equal."""
    one, other = Shape((2, 3)), Shape((2, 3))
    payload = Payload(torch.arange(3.0), [one, other])
    assert payload.buffer().tolist() == [0.0, 1.0, 2.0]
    assert [shape.shape for shape in payload.parameters()] == [(2, 3), (2, 3)]
    assert len({one, other}) == 2
