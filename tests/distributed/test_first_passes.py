"""What is recorded of first backward passes, in which DDP says least of its buckets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import SHAPES, Given, drawn
from tests.distributed.harness import on

pytestmark = pytest.mark.slow

DTYPES = [(torch.float32, torch.float64)[i // 2 % 2] for i in range(len(SHAPES))]

MODES: dict[str, dict[str, Any]] = {
    "static graph": {"static_graph": True},
    "static graph, views": {"static_graph": True, "gradient_as_bucket_view": True},
    "rebuilt": {},
    "unused": {"find_unused_parameters": True},
}


@on(2)
def test_two_dtypes_are_one_model_in_every_mode(rank: int) -> None:
    """Each bucket once a step, all steps whole and timed, and the averages right."""
    for mode, options in MODES.items():
        with Tracer(error_every=2) as tracer:
            ddp = DistributedDataParallel(Given(SHAPES, DTYPES), bucket_cap_mb=0.005, **options)
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            for step in range(6):
                ddp.zero_grad()
                ddp(drawn(rank, step, SHAPES, DTYPES)).backward()
                ranks = [drawn(r, step, SHAPES, DTYPES) for r in range(dist.get_world_size())]
                for parameter, *parts in zip(ddp.parameters(), *ranks, strict=True):
                    assert parameter.grad is not None
                    difference = parameter.grad - torch.stack(parts).mean(0)
                    assert difference.abs().max() < 1e-6, mode
        steps, found = tracer.steps(), tracer.buckets()
        assert {step.model for step in steps} == {"model0"}
        assert [(step.step, step.complete) for step in steps] == [(n, True) for n in range(6)]
        assert all(
            step.exposed_ns is not None and step.communication_ns is not None for step in steps
        )
        for one in steps:
            own = [b.bucket for b in found if b.step == one.step]
            assert own == list(range(one.bucket_count))
        assert {b.dtype for b in found if b.step == 0} == {"float32", "float64"}
        assert (tracer.anomalies(), tracer.losses()) == ([], {})
        if mode == "static graph":
            warmups = [(s.bucket_count, s.warmup) for s in steps]
            assert warmups == [(2, True)] * 2 + [(steps[-1].bucket_count, False)] * 4
            assignments = [(layout.rebuild, len(layout.buckets)) for layout in tracer.assignments()]
            assert assignments == [(0, 2), (1, steps[-1].bucket_count)]
