"""What the ranks do in ``test_calibration.py``: they train, calibrated and not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer
from hooktrace.hooks.candidates import candidates
from hooktrace.probes import calibration
from hooktrace.records import ComputeRecord, TrialRecord
from tests.capture.test_step_times import left_behind
from tests.distributed.models import make_model

STEPS = 53
CAP_MB = 0.06
WIDTH = 64
HOOKS: dict[str, dict[str, Any]] = {
    "allreduce": {},
    "fp16": {},
    "quantize-per-channel": {},
    "powersgd-rank2": {"start_powerSGD_iter": 5},
}


def train(
    rank: int,
    label: str,
    tracer: Tracer,
    *,
    micro_steps: int = 1,
    compiled: bool = False,
    **options: Any,
) -> tuple[DistributedDataParallel, torch.Tensor]:
    """Train a model with one candidate; return it, and its parameters after each step."""
    (one,) = [one for one in candidates() if one.label == label]
    model = make_model(8, WIDTH)
    ddp = DistributedDataParallel(model, bucket_cap_mb=CAP_MB, **options)
    state = one.make_state(None, **HOOKS.get(label, {}))
    hooktrace.instrument(ddp, one.hook, state, tracer=tracer, model="net")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    dropout, seen = nn.Dropout(0.1), []  # which draws from the global generator
    torch.default_generator.manual_seed(1000 + rank)
    for _ in range(STEPS):
        for micro in range(micro_steps):
            last = micro == micro_steps - 1
            with nullcontext() if last else ddp.no_sync():
                inputs = torch.randn(4, WIDTH)
                (dropout(ddp(inputs)) - inputs).square().mean().backward()
        step()
        optimizer.zero_grad()
        seen.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return ddp, torch.stack(seen)


def untouched(rank: int) -> dict[str, tuple[bool, bool, int]]:
    """Return by hook: do parameters agree bit by bit, with steps that differ; hooks left behind."""
    facts = {}
    for label in HOOKS:
        with Tracer(error_every=0, channel=False) as tracer:
            ddp, plain = train(rank, label, tracer)
            usual = left_behind(ddp)
        with Tracer(error_every=0, channel=False, calibrate=True) as tracer:
            ddp, calibrated = train(rank, label, tracer)
            tracer.flush()
            tried = {record.hook for record in tracer.records(TrialRecord)}
        dist.barrier()
        alike = torch.equal(plain, calibrated) and len(plain.unique(dim=0)) == STEPS
        all_tried = tried == {one.label for one in candidates()}
        facts[label] = (alike, all_tried, left_behind(ddp) - usual)
    return facts


def recorded(rank: int, **options: Any) -> dict[str, Any]:
    """Return what a calibrated run recorded in which each hook has time for all its trials."""
    unhurried = mock.patch.object(calibration, "_SHARE", 10_000.0)
    with unhurried, Tracer(error_every=0, channel=False, calibrate=True) as tracer:
        train(rank, "allreduce", tracer, **options)
        tracer.flush()
        facts = {
            "computes": tracer.records(ComputeRecord),
            "trials": tracer.records(TrialRecord),
            "buckets": tracer.buckets(),
            "layout": tracer.layouts()[-1],
            "steps": tracer.steps(),
        }
    dist.barrier()
    return facts


def in_micro_steps(rank: int) -> dict[str, Any]:
    """Return what was recorded where gradients come several times before they are sent."""
    return recorded(rank, micro_steps=3)


def with_a_static_graph(rank: int) -> dict[str, Any]:
    """Return what was recorded where DDP does not look at its graph again."""
    return recorded(rank, static_graph=True)


def with_a_compiled_optimizer(rank: int) -> dict[str, Any]:
    """Return what was recorded where the optimizer's hooks may be in a graph, or left out of it."""
    return recorded(rank, compiled=True)


def sent_for_real(rank: int) -> dict[str, list[tuple[str, int]]]:
    """Return by hook what a real step sends for its last bucket: collectives and bytes."""
    facts = {}
    for one in candidates():
        model = make_model(8, WIDTH)
        ddp = DistributedDataParallel(model, bucket_cap_mb=CAP_MB)
        options = {"start_powerSGD_iter": 2} if one.entry.kind == "low-rank" else {}
        with Tracer(error_every=0, channel=False) as tracer:
            state = one.make_state(None, **options)
            hooktrace.instrument(ddp, one.hook, state, tracer=tracer, model="net")
            for _ in range(4):
                ddp(torch.randn(4, WIDTH)).square().mean().backward()
            tracer.flush()
            stages = tracer.buckets()[-1].stages
        facts[one.label] = [
            (s.collective, s.wire_bytes) for s in stages if s.collective and s.name == "wire"
        ]
        dist.barrier()
    return facts
