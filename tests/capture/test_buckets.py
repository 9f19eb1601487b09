"""Buckets and models as hook calls find them: steps are counted by the order of indices."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import torch

from hooktrace.capture.buckets import BucketSlot, ModelState, in_backward
from hooktrace.testing import FakeBucket


def model() -> ModelState:
    """Return a model that was called for no bucket yet."""
    return ModelState("net", "hook", {}, 0)


def test_an_index_that_does_not_ascend_begins_a_step() -> None:
    """Also where a backward pass failed half-way, and where there is one bucket."""
    net = model()
    assert [net.enter(i) for i in (0, 1, 2, 0, 1, 0, 0)] == [0, 0, 0, 1, 1, 2, 3]


def test_a_slot_keeps_no_tensor_alive() -> None:
    """Numbers, names and a weak reference."""
    weight = torch.zeros(2, 3)
    bucket = FakeBucket([weight, torch.zeros(4)], index=1)
    slot = BucketSlot(ModelState("net", "hook", {weight: "w"}, 0), bucket, 1, (id(weight), 0))
    assert slot.layout().parameters == (("w", (2, 3)), ("1.1", (4,)))
    assert (slot.numel, slot.gradient_bytes, slot.dtype) == (10, 40, "float32")
    kept = weakref.ref(bucket.buffer())
    del bucket, weight
    gc.collect()
    assert kept() is None
    assert slot.buffer() is None


def test_calls_in_flight_are_counted() -> None:
    """Of each bucket the last one."""
    net = model()
    for index, in_flight in enumerate((True, False, None)):
        slot = BucketSlot(net, FakeBucket([torch.zeros(1)], index=index), index, (index,))
        call: Any = None if in_flight is None else SimpleNamespace(in_flight=in_flight)
        slot.last_call = call
        net.slots[index] = slot
    assert net.in_flight() == 1


def test_a_bucket_made_for_a_test_counts_as_one_of_a_backward_pass() -> None:
    """Torch is not asked."""
    assert in_backward(FakeBucket([torch.zeros(1)]))
