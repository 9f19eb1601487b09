"""Buckets and models as hook calls find them: which model a bucket belongs to."""

from __future__ import annotations

import gc
import math
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState as Theirs

from hooktrace import Tracer
from hooktrace.hooks import PowerSGDState
from hooktrace.records import Parameter
from hooktrace.staging.slots import LayoutTracker, options_of
from hooktrace.testing import FakeBucket
from tests.fakes import Job
from tests.staging.test_backward import ENGINE, chain


def test_a_slot_keeps_no_tensor_alive(layout: LayoutTracker) -> None:
    """Numbers, names and a weak reference."""
    weight = torch.zeros(2, 3)
    bucket = FakeBucket([weight, torch.zeros(4)], index=1)
    layout.learn_names([("w", weight)])
    slot, _ = layout.identify(bucket)
    assert slot.layout().parameters == (Parameter("w", (2, 3)), Parameter("1.1", (4,)))
    assert (slot.numel, slot.gradient_bytes, slot.dtype) == (10, 40, "float32")
    kept = weakref.ref(bucket.buffer())
    del bucket, weight
    gc.collect()
    assert (kept(), slot.buffer()) == (None, None)


@pytest.fixture
def layout() -> LayoutTracker:
    """What finds the slots of one hook."""
    sink: Any = SimpleNamespace(push=lambda _: None, clock=lambda: 0, first_step=0)
    return LayoutTracker("hook", "net", sink)


def test_a_copied_buffer_address_is_not_trusted() -> None:
    """A new model whose bucket lies where an old one's lay is not taken for the old one."""
    with Tracer() as tracer:
        job = Job(tracer)
        bucket = job.buckets[0]
        for _ in range(3):
            job.step()
        bucket._parameters = [torch.zeros(4)]
        bucket._buffer = bucket._buffer.detach()  # another tensor on the same memory
        for _ in range(3):
            job.step()
        assert [(s.model, s.step) for s in tracer.steps()] == [
            *[("model0", i) for i in range(3)],
            *[("model0#2", i) for i in range(3)],
        ]


def test_models_that_follow_each_other_are_kept_apart() -> None:
    """A new model is not taken for a deleted one whose parameters' ids it got."""
    with Tracer() as tracer:
        job = Job(tracer)
        for size in range(1, 6):
            job.buckets = [FakeBucket([torch.zeros(size)])]
            job.parameters.clear()
            job.step()
            job.step()
        steps = [(s.model, s.step, s.rebuild) for s in tracer.steps()]
        names = ["model0", *(f"model0#{n}" for n in range(2, 6))]
        assert steps == [(name, step, 0) for name in names for step in range(2)]
        assert len(job.hook._layout.models) <= 2


def test_names_go_with_their_parameters(layout: LayoutTracker) -> None:
    """A later parameter may get the id of one that is gone."""
    weight, bias = torch.zeros(2), torch.zeros(1)
    layout.learn_names([("weight", weight), ("bias", bias)])
    del weight
    slot, _ = layout.identify(FakeBucket([bias, torch.zeros(3)]))
    assert slot.parameters == (("bias", (1,)), ("0.1", (3,)))
    assert list(layout._names.values()) == ["bias"]


def test_all_buckets_of_a_static_graphs_first_pass_say_that_they_are_the_first() -> None:
    """Where there are several: they come in their order, and say it from the second pass on."""
    parts = [[torch.zeros(4)], [torch.zeros(4, dtype=torch.float64)]]
    with Tracer() as tracer:
        job = Job(tracer)
        job.buckets = [FakeBucket(part, 0, is_last=False) for part in parts]
        chain(lambda: ENGINE.queue_callback(job.step)).backward()
        job.buckets = [FakeBucket(part, i, is_last=i == 1) for i, part in enumerate(parts)]
        job.step()
        found = [(s.model, s.step, s.bucket_count) for s in tracer.steps()]
        assert found == [("model0", 0, 2), ("model0", 1, 2)]


def test_a_finished_model_is_not_taken_for_one_in_its_first_pass() -> None:
    """The second bucket of a new model follows its first one, not another model's only one."""
    parts = [[torch.zeros(4)] for _ in range(2)]
    with Tracer() as tracer:
        job = Job(tracer)
        first, alone = [FakeBucket(parts[0], 0, is_last=False)], job.buckets
        for buckets in (first, alone, [FakeBucket(parts[1], 1)]):
            job.buckets = buckets
            job.step()
        found = [(s.model, s.bucket_count) for s in tracer.steps()]
        assert found == [("model0", 2), ("model0#2", 1)]


@pytest.mark.parametrize("state", [PowerSGDState, Theirs])
def test_a_state_is_what_it_was_made_with(state: Any) -> None:
    """Ours and torch's: the arguments, and not the counters nor the tensors."""
    found = dict(options_of(state(None, matrix_approximation_rank=3, start_powerSGD_iter=7)))
    assert (found["matrix_approximation_rank"], found["start_powerSGD_iter"]) == (3, 7)
    assert found["warm_start"] is True
    assert not {"iter", "rng", "error_dict", "process_group", "random_seed"} & set(found)


class _Odd:
    kind = "of the class"

    def __init__(self, rate: Any, name: str, weights: object, kind: str = "") -> None:
        self.rate, self.name, self.weights = rate, name, weights


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (None, ()),
        (0.5, (("state", 0.5),)),
        (_Odd(0.5, "a", torch.zeros(3)), (("rate", 0.5), ("name", "a"))),
        (_Odd(math.nan, "a" * 201, None), ()),
        (type("Broken", (_Odd,), {"kind": property(lambda _: 1 // 0)})(0.5, "a", None), ()),
    ],
)
def test_what_is_no_option_is_left_out(state: Any, found: tuple[Any, ...]) -> None:
    """Tensors, NaN, texts without end; a state that raises tells nothing, and raises nothing."""
    assert options_of(state) == found


def test_buffers_that_are_new_in_each_step_are_not_kept(layout: LayoutTracker) -> None:
    """As under ``lazy_bucket_allocation``: each is identified, and old ones are forgotten."""
    parameters = [[torch.zeros(2)], [torch.zeros(3)]]
    for _ in range(5):
        for i, one in enumerate(parameters):
            bucket = FakeBucket(one, index=i, is_last=i == 1)
            assert layout.find(bucket) is None
            slot, _ = layout.identify(bucket)
            assert layout.find(bucket) is slot
            slot.model.enter(slot.index)
    assert [model.step for model in layout.models] == [4]
    assert len(layout.by_buffer) == 2
