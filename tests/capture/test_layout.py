"""Which model a bucket belongs to."""

from __future__ import annotations

import torch

from hooktrace import Tracer
from hooktrace.capture.layout import LayoutTracker
from hooktrace.records import LayoutRecord
from hooktrace.testing import FakeBucket
from tests.fakes import Job


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
        steps = [(s.model, s.step, s.generation) for s in tracer.steps()]
        names = ["model0", *(f"model0#{n}" for n in range(2, 6))]
        assert steps == [(name, step, 0) for name in names for step in range(2)]
        assert len(job.hook._layout.models) <= 2


def test_names_go_with_their_parameters() -> None:
    """A later parameter may get the id of one that is gone."""
    layout = LayoutTracker("hook", str, [].append, lambda: 0, lambda: 0)
    weight, bias = torch.zeros(2), torch.zeros(1)
    layout.learn_names([("weight", weight), ("bias", bias)])
    del weight
    slot, _ = layout.identify(FakeBucket([bias, torch.zeros(3)]))
    assert slot.parameters == (("bias", (1,)), ("0.1", (3,)))
    assert list(layout._names.values()) == ["bias"]


def test_a_layout_says_what_the_hook_and_ddp_were_told() -> None:
    layouts: list[LayoutRecord] = []
    layout = LayoutTracker("hook", str, layouts.append, lambda: 0, lambda: 0)
    layout.bucket_cap_bytes = 1 << 20
    parameter = torch.zeros(2)
    layout.identify(FakeBucket([parameter]), 0.25)
    layout.identify(FakeBucket([parameter, torch.zeros(3)]), 0.25)
    assert [(r.hook_options, r.bucket_cap_bytes) for r in layouts] == [
        ((("state", 0.25),), 1 << 20)
    ] * 2
