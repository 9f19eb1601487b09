"""What is recorded of first backward passes, in which DDP says least of its buckets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import SHAPES, Given, Gradients, drawn
from tests.distributed.harness import on

pytestmark = pytest.mark.slow

DTYPES = [(torch.float32, torch.float64)[i // 2 % 2] for i in range(len(SHAPES))]

MODES: dict[str, dict[str, Any]] = {
    "static graph": {"static_graph": True},
    "static graph, views": {"static_graph": True, "gradient_as_bucket_view": True},
    "rebuilt": {},
    "unused": {"find_unused_parameters": True},
}


class _Model:
    """A DDP model of two dtypes with a traced hook."""

    def __init__(self, tracer: Tracer, hook: Any, state: Any, **options: Any) -> None:
        self.ddp = torch.nn.parallel.DistributedDataParallel(
            Given(SHAPES, DTYPES), bucket_cap_mb=0.005, **options
        )
        hooktrace.instrument(self.ddp, hook, state, tracer=tracer)

    def step(self, given: Gradients) -> Gradients:
        self.ddp.zero_grad()
        self.ddp(given).backward()
        return [p.grad.clone() for p in self.ddp.parameters() if p.grad is not None]


def _given(rank: int, step: int) -> Gradients:
    return drawn(rank, step, SHAPES, DTYPES)


def _check(tracer: Tracer) -> None:
    """All buckets are of one model, and its steps are timed."""
    steps, found = tracer.steps(), tracer.buckets()
    assert {step.model for step in steps} == {"model0"}
    assert [(step.step, step.complete) for step in steps] == [(n, True) for n in range(6)]
    assert all(step.exposed_ns is not None and step.busy_ns is not None for step in steps)
    for step in steps:
        own = [b.bucket for b in found if b.step == step.step]
        assert own == list(range(step.bucket_count))
    assert {b.dtype for b in found if b.step == 0} == {"float32", "float64"}
    assert (tracer.anomalies(), tracer.losses()) == ([], {})


@on(2)
def test_two_dtypes_are_one_model_in_every_mode(rank: int) -> None:
    """Each bucket once a step, all steps whole and timed, and the averages right."""
    for mode, options in MODES.items():
        with Tracer(error_every=2) as tracer:
            model = _Model(tracer, hooks.allreduce_hook, None, **options)
            for step in range(6):
                averaged = model.step(_given(rank, step))
                ranks = [_given(other, step) for other in range(dist.get_world_size())]
                for got, *parts in zip(averaged, *ranks, strict=True):
                    assert (got - torch.stack(parts).mean(0)).abs().max() < 1e-6, mode
        _check(tracer)
        if mode == "static graph":
            steps = tracer.steps()
            warmups = [(s.bucket_count, s.warmup) for s in steps]
            assert warmups == [(2, True)] * 2 + [(steps[-1].bucket_count, False)] * 4
            layouts = [(layout.generation, len(layout.buckets)) for layout in tracer.layouts()]
            assert layouts == [(0, 2), (1, steps[-1].bucket_count)]


@on(2)
def test_powersgd_compresses_models_of_two_dtypes(rank: int) -> None:
    """Its state is of one model, and counts passes from the first one that tells its last bucket.

    Where it remembers nothing of buckets it is no matter that they are rebuilt after that.
    """
    for hook, start, static in itertools.product(
        (hooks.powerSGD_hook, hooks.batched_powerSGD_hook), (0, 2), (False, True)
    ):
        remembers = start == 2
        state = hooks.PowerSGDState(
            None, 1, start, use_error_feedback=remembers, warm_start=remembers,
            min_compression_rate=1,
        )  # fmt: skip
        with Tracer(error_every=0) as tracer:
            model = _Model(tracer, hook, state, static_graph=static)
            for step in range(6):
                model.step(_given(rank, step))
        _check(tracer)
        assert (tracer.steps()[-1].compression_ratio or 0) > 1.5
        assert not (remembers and static) or state.iter == 5
