"""The local error, on 2 real gloo ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hooktrace
from hooktrace import AllReduce, Tracer, hooks
from hooktrace.staging.groups import group_of
from tests.distributed.harness import on
from tests.distributed.models import backward, gradients, heard, make_ddp
from tests.distributed.oracles import quantised_mean
from tests.distributed.test_debug import BUCKETS

pytestmark = pytest.mark.slow

STEPS = 12
CAP_MB = 0.004


def _run(
    hook: Callable[..., Any], rank: int, state: object = None, **options: Any
) -> tuple[list[Any], torch.Tensor, dict[tuple[int, int], torch.Tensor]]:
    """Return the records, all gradients, and each bucket's own gradients by (step, bucket)."""
    ddp = make_ddp(CAP_MB)
    own: dict[tuple[int, int], torch.Tensor] = {}
    seen = []
    with Tracer(**{"error": "local", "error_every": 1, **options}) as tracer:
        hooktrace.instrument(ddp, hook, state, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
            seen.append(gradients(ddp).clone())
        tracer.flush()
        records = tracer.buckets()
        layout = tracer.assignments()[-1]
    dist.barrier()
    # What DDP would hand to a hook, from a model that nobody averages.
    plain = make_ddp(CAP_MB).module
    names = dict(plain.named_parameters())
    for step in range(STEPS):
        plain.zero_grad()
        backward(plain, rank, step)
        for bucket in layout.buckets:
            parts = [names[one.name].grad.flatten() for one in bucket.parameters]
            own[step, bucket.bucket] = torch.cat(parts).clone()
    return records, torch.stack(seen), own


def _relative(result: torch.Tensor, own: torch.Tensor) -> float:
    return float((result.double() - own.double()).norm() / own.double().norm())


def _cast(own: torch.Tensor, ranks: int) -> torch.Tensor:
    half = own.half().div_(ranks)
    return half.mul_(ranks).float()


EXPECTED: dict[str, tuple[Any, Callable[[torch.Tensor, int], torch.Tensor]]] = {
    "allreduce": (hooks.allreduce_hook, lambda own, ranks: own),
    "fp16": (hooks.fp16_compress_hook, _cast),
    "per tensor": (
        hooks.quantization_pertensor_hook,
        lambda own, ranks: quantised_mean([own] * ranks),
    ),
    "noop": (hooks.noop_hook, lambda own, ranks: own),
}


@on(2)
def test_the_local_error_is_that_of_compress_and_decompress(rank: int) -> None:
    """As computed from the rank's own gradients; nothing was sent for it."""
    for name, (hook, compute) in EXPECTED.items():
        records, _, own = _run(hook, rank)
        found = {(r.step, r.bucket): r.error for r in records if r.error is not None}
        assert [step for step, _ in found] == list(range(1, STEPS))
        assert len({bucket for _, bucket in found}) == BUCKETS
        for place, error in found.items():
            assert error.scope == "local"
            expected = _relative(compute(own[place], 2), own[place])
            assert error.relative_l2 == pytest.approx(expected, rel=1e-6)
            assert (error.relative_l2 == 0) == (name in ("allreduce", "noop"))


@hooktrace.staged
def drawing_hook(state: Any, bucket: Any) -> Any:
    """Add noise of three random number generators."""
    group = group_of(None)
    noise = torch.rand(1).item() + random.random() + float(np.random.rand())
    total = yield AllReduce(bucket.buffer().div_(group.size()).add_(noise), group)
    return total


@on(2)
def test_local_probes_leave_the_hook_as_it_was(rank: int) -> None:
    """Residuals, warm starts and random numbers: the gradients are the same bit for bit."""
    for name, hook, make in (
        ("powersgd", hooks.powerSGD_hook, lambda: hooks.PowerSGDState(None, 1, 2)),
        (
            "cold powersgd",
            hooks.powerSGD_hook,
            lambda: hooks.PowerSGDState(None, 1, 2, warm_start=False),
        ),
        ("draws", drawing_hook, lambda: None),
    ):
        runs = []
        for options in ({"error_every": 0}, {"error_all_buckets": True}):
            torch.manual_seed(5)
            random.seed(5)
            np.random.seed(5)
            records, seen, _ = _run(hook, rank, make(), **options)
            runs.append(seen)
        checked = sum(r.error is not None for r in records)
        residuals = [r.error.residual_l2 for r in records if r.error is not None]
        assert torch.equal(*runs), name
        assert checked >= 6 * (STEPS - 2), name
        assert any(residuals) == ("powersgd" in name), name


@on(2)
def test_a_local_error_that_cannot_be_known_is_said_to_be_so(rank: int) -> None:
    """Once, with the reason, and training goes on."""
    for hook, state, reason in (
        (default_hooks.allreduce_hook, None, "is a plain hook"),
        (hooks.gossip_grad_hook, hooks.GossipGradState(None), "without sending"),
    ):
        with heard("local error of ") as said:
            records, seen, _ = _run(hook, rank, state)
        (line,) = said
        assert reason in line
        assert {r.error for r in records} == {None}
        assert len(seen) == STEPS


@on(2)
def test_one_rank_may_measure_its_local_error_alone(rank: int) -> None:
    """No other rank is asked."""
    records, _, _ = _run(hooks.fp16_compress_hook, rank, error_every=rank * 1000 or 1)
    assert sum(r.error is not None for r in records) == (0 if rank else STEPS - 1)
