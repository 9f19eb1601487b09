"""First backward passes in which DDP shows a model with parameters of two dtypes."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import SHAPES, Given, Gradients, drawn

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


def _facts(tracer: Tracer) -> dict[str, Any]:
    buckets = tracer.buckets()
    return {
        "models": sorted({step.model for step in tracer.steps()}),
        "steps": [(s.step, s.bucket_count, s.complete, s.warmup) for s in tracer.steps()],
        "buckets": [[b.bucket for b in buckets if b.step == s.step] for s in tracer.steps()],
        "first": sorted(b.dtype for b in buckets if b.step == 0),
        "timed": [s.exposed_ns is not None and s.busy_ns is not None for s in tracer.steps()],
        "layouts": [(layout.generation, len(layout.buckets)) for layout in tracer.layouts()],
        "anomalies": [a.kind for a in tracer.anomalies()],
        "lost": tracer.losses(),
    }


def two_dtypes(rank: int) -> dict[str, dict[str, Any]]:
    """Return what is recorded of six steps of each mode, and how wrong their averages are."""
    facts = {}
    for mode, options in MODES.items():
        with Tracer(error_every=2) as tracer:
            model = _Model(tracer, hooks.allreduce_hook, None, **options)
            worst = 0.0
            for step in range(6):
                averaged = model.step(_given(rank, step))
                ranks = [_given(other, step) for other in range(dist.get_world_size())]
                for got, *parts in zip(averaged, *ranks, strict=True):
                    mean = torch.stack(parts).mean(0)
                    worst = max(worst, (got - mean).abs().max().item())
            facts[mode] = {**_facts(tracer), "wrong by": worst}
    return facts


def compressed(rank: int) -> dict[str, dict[str, Any]]:
    """Likewise with PowerSGD, whose state belongs to one model: how much it compressed at last.

    From the third step on with memory, and from the start where it remembers nothing.
    """
    facts = {}
    for hook, start, static in itertools.product(
        (hooks.powerSGD_hook, hooks.batched_powerSGD_hook), (0, 1, 2), (False, True)
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
            last = tracer.steps()[-1]
            found = {**_facts(tracer), "ratio": last.compression_ratio, "iter": state.iter}
        facts[f"{hook.__name__} from {start}{', static graph' * static}"] = found
    return facts
