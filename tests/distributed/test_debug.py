"""Debug mode, on 2 real gloo ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import serialised
from tests.distributed.harness import on
from tests.distributed.models import anomalies, make_ddp, traced
from tests.fakes import plain

pytestmark = pytest.mark.slow

STEPS = 16
CAP_MB = 0.004
BUCKETS = 6

Hook = Callable[..., Any]


def _changing(factor: float, *, at_the_end: bool = False) -> Hook:
    """Return a hook whose results change after they were given: when the next hook is called.

    ``at_the_end``: the result of bucket 0, while DDP waits for the last one's.
    """
    last: list[torch.Tensor] = []

    def hook(state: Any, bucket: Any) -> Any:
        if last and not at_the_end:
            last.pop().mul_(factor)
        buffer = bucket.buffer()
        dist.all_reduce(buffer.div_(dist.get_world_size()))
        is_one = bucket.index() == 0 if at_the_end else not bucket.is_last()
        if is_one:
            last[:] = [buffer]
        elif at_the_end and bucket.is_last():
            first, engine = last.pop(), torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: first.mul_(factor))
        return plain(state, bucket)

    return hook


def _found(hook: Hook, rank: int, state: object = None, **model: Any) -> list[tuple[str, int]]:
    """Return the anomalies that debug mode alone found, with their buckets."""
    options: dict[str, Any] = {"debug": True, "error_every": 0, "steps": STEPS}
    tracer, _ = traced(hook, rank, state, model=model, **options)
    return sorted((a.kind, a.bucket) for a in tracer.anomalies())


@on(2)
def test_a_result_that_changes_after_its_future_completed_is_named(rank: int) -> None:
    """For each bucket that changed; the last one of a step did not."""
    changed = [("changed_after_completion", i) for i in range(BUCKETS)]
    assert _found(_changing(2), rank) == changed[:-1]
    assert _found(_changing(2, at_the_end=True), rank) == changed[:1]


@on(2)
def test_debug_mode_has_nothing_to_say_of_right_hooks(rank: int) -> None:
    """Hooktrace's and torch's, however DDP is set up."""
    assert _found(_changing(1), rank) == []
    torchs = serialised(powerSGD_hook.powerSGD_hook)
    for views in (False, True):
        for hook, state in (
            (hooks.quantization_pertensor_hook, None),
            (hooks.powerSGD_hook, hooks.PowerSGDState(None, 1, 2)),
            (hooks.noop_hook, None),
            (torchs, powerSGD_hook.PowerSGDState(None, 1, 2)),
        ):
            assert _found(hook, rank, state, gradient_as_bucket_view=views) == [], hook
    for mode in ("find_unused_parameters", "static_graph"):
        assert _found(hooks.fp16_compress_hook, rank, **{mode: True}) == [], mode


SYNCHRONISED: dict[str, tuple[str, int] | None] = {
    "ddp": None,
    "no_sync": None,
    "by another ddp": None,
    "ddp.module": ("not_synchronised", 0),
    "later ddp.module": ("not_synchronised", 8),
    "forward only in no_sync": ("not_synchronised", 0),
}
"""How a model is called, and what is found: those under no_sync() are meant to be so."""


@on(2)
def test_a_model_that_is_never_synchronised_is_named(rank: int) -> None:
    """After 100 backward passes."""
    for name, expected in SYNCHRONISED.items():
        ddp: Any = make_ddp(CAP_MB)
        other = DistributedDataParallel(ddp.module) if name == "by another ddp" else ddp
        with Tracer(error_every=0) as tracer:
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            for step in range(120):
                is_left = name == "ddp.module" or (name == "later ddp.module" and step >= 9)
                inputs = torch.ones(2, 32)
                if name == "no_sync" and step < 119:
                    with ddp.no_sync():
                        ddp(inputs).sum().backward()
                elif name == "forward only in no_sync":
                    with ddp.no_sync():
                        outputs = ddp(inputs)
                    outputs.sum().backward()
                else:
                    (ddp.module if is_left else other)(inputs).sum().backward()
            tracer.flush()
            found = [(a.kind, a.step) for a in anomalies(tracer)]
        dist.barrier()
        assert found == ([] if expected is None else [expected]), name


@on(2)
def test_the_first_nan_has_its_step_parameter_and_rank(rank: int) -> None:
    """On the rank that had it; the other one says that it came from elsewhere."""
    for overflows, hook in ((False, hooks.allreduce_hook), (True, hooks.fp16_compress_hook)):
        ddp = make_ddp(CAP_MB)
        with Tracer(debug=True, error_every=0) as tracer:
            hooktrace.instrument(ddp, hook, tracer=tracer)
            for step in range(6):
                ddp.zero_grad()
                torch.manual_seed(rank)
                inputs = torch.randn(4, 32)
                if step == 3 and not overflows and rank == 1:
                    ddp.module[2].weight.register_hook(lambda g: g.fill_(float("nan")))
                loss = ddp(inputs).square().sum()
                (loss * 1e6 if overflows and step >= 3 else loss).backward()
            tracer.flush()
            found = {(a.kind, a.step, a.bucket, a.parameter, a.rank) for a in tracer.anomalies()}
        dist.barrier()
        if overflows:
            assert {(kind, at, r) for kind, at, *_, r in found} == {("nonfinite_average", 3, rank)}
        elif rank == 0:
            assert found == {("nonfinite_average", 3, 3, "2.weight", 0)}
        else:
            assert ("nonfinite_gradient", 3, 3, "2.weight", 1) in found
