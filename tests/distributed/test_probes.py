"""Sampled checks on real gloo ranks: errors that are known, and hooks that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import serialised
from tests.distributed.harness import on
from tests.distributed.models import anomalies, gradients, traced, train

pytestmark = pytest.mark.slow

STEPS = 20
CAP_MB = 0.004
FIRST = 1

Probed = list[tuple[int, int]]


def _train(
    hook: Callable[..., Any], rank: int, state: object = None, **options: Any
) -> tuple[Tracer, torch.Tensor]:
    """Train with a probe at every step that can be checked."""
    return traced(hook, rank, state, steps=STEPS, error_every=1, **options)


def checked_of(tracer: Tracer, model: str = "model0") -> Probed:
    return [(b.step, b.bucket) for b in tracer.buckets(model) if b.error is not None]


HALF = 2.0**-11
KNOWN: dict[str, tuple[Callable[..., Any], float, float]] = {
    "allreduce": (hooks.allreduce_hook, 0.0, 0.0),
    "torch's allreduce": (default_hooks.allreduce_hook, 0.0, 0.0),
    # Each of n summands and each of n - 1 sums is rounded once.
    "fp16": (hooks.fp16_compress_hook, 0.0, 8 * HALF),
    "torch's fp16": (default_hooks.fp16_compress_hook, 0.0, 8 * HALF),
    "bf16": (hooks.bf16_compress_hook, 0.0, 64 * HALF),
    "noop": (hooks.noop_hook, 0.05, 2.0),
}
"""Hooks on 4 ranks, and between what their relative errors are."""


@on(4)
def test_errors_are_what_the_hooks_lose(rank: int) -> None:
    """Of one bucket in turn in each due step; exactly nothing where the hook is lossless."""
    for hook, least, most in KNOWN.values():
        tracer, _ = _train(hook, rank)
        found = [b for b in tracer.buckets() if b.error is not None]
        count = max(b.bucket for b in found) + 1
        assert count >= 5
        assert checked_of(tracer) == [(s, (s - FIRST) % count) for s in range(FIRST, STEPS)]
        for error in [b.error for b in found if b.error is not None]:
            assert least <= (error.relative_l2 or 0.0) <= most
            assert error.cosine == pytest.approx(1.0, abs=most or 1e-12)
            assert most or (error.max_absolute, error.flipped_share) == (0.0, 0.0)
        assert anomalies(tracer) == []  # noop is declared local


@on(2)
def test_the_residual_of_error_feedback_is_measured(rank: int) -> None:
    """Of this PowerSGD and of torch's: the norm of what the state holds after the step."""
    torchs = serialised(powerSGD_hook.powerSGD_hook)
    for module, hook in ((hooks, hooks.powerSGD_hook), (powerSGD_hook, torchs)):
        state = module.PowerSGDState(None, 1, 2, min_compression_rate=0.5)
        tracer, _ = traced(hook, rank, state, steps=5, error_every=1, model={"layers": 1})
        error = tracer.buckets()[-1].error
        assert error is not None
        own = state.error_dict[0].double().norm().item()
        assert error.residual_l2 == pytest.approx(own, rel=1e-9)
        assert own > 0


@on(2)
def test_probing_leaves_training_as_it_is(rank: int) -> None:
    """Bit for bit, one bucket in turn and all of them; so does debug mode."""
    for hook, state in (
        (hooks.fp16_compress_hook, lambda: None),
        (hooks.powerSGD_hook, lambda: hooks.PowerSGDState(None, 1, 2)),
        (default_hooks.allreduce_hook, lambda: None),
        (default_hooks.fp16_compress_hook, lambda: None),
    ):
        reference = train(hook, rank, steps=STEPS, state=state(), bucket_cap_mb=CAP_MB)
        for all_buckets in (False, True):
            tracer, seen = _train(hook, rank, state(), error_all_buckets=all_buckets)
            assert torch.equal(seen, reference)
            assert len(checked_of(tracer)) >= (5 if all_buckets else 1) * (STEPS - FIRST)
        _, seen = traced(hook, rank, state(), steps=STEPS, debug=True, error_every=0)
        assert torch.equal(seen, reference)
    # One bucket whose result DDP reads as it is: a probe must not have written to it.
    runs = []
    for every in (0, 1):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(nn.Linear(32, 32).bfloat16())
        with Tracer(error_every=every) as tracer:
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            runs.append([])
            for step in range(STEPS):
                ddp.zero_grad()
                torch.manual_seed(rank + 2 * step)
                ddp(torch.randn(4, 32, dtype=torch.bfloat16)).square().sum().backward()
                runs[-1].append(gradients(ddp).clone())
    assert all(map(torch.equal, *runs))


def _hook(function: Callable[[torch.Tensor, Any], Any]) -> Callable[..., Any]:
    """Return a plain hook of a function of the flat gradients and of the group's size."""

    def made(state: Any, bucket: Any) -> Any:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(function(bucket.buffer(), dist.get_world_size()))
        return future

    made.__qualname__ = made.__name__ = "made"
    return made


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


def _of_rank_0(tensor: torch.Tensor, _: int) -> torch.Tensor:
    dist.broadcast(tensor, 0)
    return tensor


def _overflowing(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return _summed(tensor.mul(1e5).half()).float() / size / 1e5


WRONG: dict[str, tuple[Callable[[torch.Tensor, int], torch.Tensor], str]] = {
    "not_averaged": (lambda t, _: _summed(t), "the result is 4 times the average"),
    "not_communicated": (lambda t, _: t, ""),
    "ranks_missing": (_of_rank_0, "the gradients of rank(s) 1, 2, 3 are not in the result"),
    "nonfinite_result": (_overflowing, "the hook made NaN or inf of "),
    "replicas_diverge": (
        lambda t, n: _summed(t / n).mul_(1 + 1e-6 * dist.get_rank()),
        "were not the same on ranks [0] and [1] and [2] and [3]; give",
    ),
}
"""Kinds, a hook of each, and a part of what is said; right hooks, and more wrong ones:
``tests/probes/test_weights.py``."""


@on(4)
def test_a_wrong_hook_is_named(rank: int) -> None:
    """By what it does, once a bucket."""
    for kind, (function, said) in WRONG.items():
        found = anomalies(_train(_hook(function), rank)[0])
        # A hook that does not communicate makes the replicas diverge too.
        follows = {"replicas_diverge"} if kind == "not_communicated" else set()
        assert {a.kind for a in found} - follows == {kind}
        buckets = 6
        count = sum(a.kind == kind for a in found)
        assert (1 if kind == "nonfinite_result" else buckets) <= count <= buckets
        assert "hook 'made', bucket " in found[0].message
        assert said in found[0].message


@on(2)
def test_a_checked_step_gives_no_times(rank: int) -> None:
    """Nor does a model's first step, nor any in debug mode; errors are those of checked steps."""
    for hook, options, compared, checked in (
        (hooks.allreduce_hook, {"error_every": 5}, [5, 10, 15], [0, 5, 10, 15]),
        (hooks.allreduce_hook, {"error_every": 0, "debug": True}, [], [*range(STEPS)]),
    ):
        tracer, _ = traced(hook, rank, steps=STEPS, **options)  # type: ignore[arg-type]
        steps, buckets = tracer.steps(), tracer.buckets()
        assert sorted({b.step for b in buckets if b.error is not None}) == compared
        assert [s.step for s in steps if s.checked] == checked
        assert [s.step for s in steps if s.counts] == [n for n in range(STEPS) if n not in checked]
        for bucket in buckets:  # its stages follow each other from ready to done
            starts = [s.start_ns for s in bucket.stages]
            ends = [s.end_ns for s in bucket.stages]
            assert [bucket.ready_ns, *ends] == [*starts, bucket.done_ns]
            assert bucket.checked or not bucket.stage_ns("check")
