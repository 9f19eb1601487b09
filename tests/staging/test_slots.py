"""Buckets and models as hook calls find them."""

from __future__ import annotations

import gc
import weakref

import torch

from hooktrace.records import Parameter
from hooktrace.staging.slots import BucketSlot, FlatBucket, ModelState
from hooktrace.testing import FakeBucket


def test_an_index_that_does_not_ascend_begins_a_step() -> None:
    """Also where a backward pass failed half-way, and where there is one bucket."""
    net = ModelState("net", "hook", {}, 0)
    assert [net.enter(i) for i in (0, 1, 2, 0, 1, 0, 0)] == [0, 0, 0, 1, 1, 2, 3]


def test_a_slot_keeps_no_tensor_alive() -> None:
    """Numbers, names and a weak reference."""
    weight = torch.zeros(2, 3)
    bucket = FakeBucket([weight, torch.zeros(4)], index=1)
    slot = BucketSlot(ModelState("net", "hook", {weight: "w"}, 0), bucket, 1, (id(weight), 0))
    assert slot.layout().parameters == (Parameter("w", (2, 3)), Parameter("1.1", (4,)))
    assert (slot.numel, slot.gradient_bytes, slot.dtype) == (10, 40, "float32")
    kept = weakref.ref(bucket.buffer())
    del bucket, weight
    gc.collect()
    assert (kept(), slot.buffer()) == (None, None)


def test_gradients_are_views_of_the_buffer() -> None:
    """In the parameters' shapes and order, also of another buffer."""
    bucket = FlatBucket([torch.zeros(2, 3), torch.zeros(4)], torch.zeros(10), 2, False)
    bucket.set_buffer(torch.arange(10.0))
    matrix, vector = bucket.gradients()
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3))
    vector.fill_(-1)
    assert bucket.buffer()[6:].tolist() == [-1.0] * 4
