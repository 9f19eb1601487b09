"""Buckets and models as hook calls find them: steps are counted by the order of indices."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import torch

from hooktrace.records import Parameter
from hooktrace.staging.slots import (
    BucketSlot,
    FlatBucket,
    ModelState,
    PassedCalls,
    Payload,
    Shape,
    in_backward,
)
from hooktrace.testing import FakeBucket


def model() -> ModelState:
    """Return a model that was called for no bucket yet."""
    return ModelState("net", "hook", {}, 0)


def test_an_index_that_does_not_ascend_begins_a_step() -> None:
    """Also where a backward pass failed half-way, and where there is one bucket."""
    net = model()
    assert [net.enter(i) for i in (0, 1, 2, 0, 1, 0, 0)] == [0, 0, 0, 1, 1, 2, 3]


def met(*indices: int, last: int) -> ModelState:
    """Return a model that was called for these buckets in each of three steps."""
    net = model()
    for index in indices * 3:
        net.slots[index] = BucketSlot(net, FakeBucket([torch.zeros(1)], index), index, (index,))
        net.slots[index].is_last = index == last
        net.enter(index)
    return net


def test_calls_are_passed_of_a_model_whose_buckets_stay() -> None:
    """Not where DDP may still rebuild them, nor where a hook is called for some of them only."""
    net = met(0, 1, 2, last=2)
    passed = net.pass_calls()
    assert passed is not None
    assert net.position == (2, 2)
    passed.calls += 5
    assert net.position == (4, 1)
    assert (net.step, net.last_index) == (2, 2)
    net.settle()
    assert (net.step, net.last_index, net.passed) == (4, 1, None)
    for partly in (met(1, 2, last=2), met(0, 2, last=2), met(0, 1, last=2), met(1, last=1)):
        assert partly.pass_calls() is None
    young = met(0, 1, 2, last=2)
    young.step = young.first_step + 1
    assert young.pass_calls() is None


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


def test_each_call_is_the_next_bucket() -> None:
    """After the last one of a step comes the first of the next."""
    passed = PassedCalls(7, 1, 3)
    found = []
    for _ in range(6):
        found.append(passed.position)
        passed.calls += 1
    assert found == [(7, 1), (7, 2), (8, 0), (8, 1), (8, 2), (9, 0)]


def test_one_bucket_a_step() -> None:
    """Each call is a step."""
    passed = PassedCalls(4, 0, 1)
    passed.calls = 5
    assert passed.position == (9, 0)


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
