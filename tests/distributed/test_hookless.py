"""DDP models without a hook, on real gloo ranks (torch >= 2.14); the oracle is a hook."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, instrument
from hooktrace.tracing import hookless
from tests.distributed.harness import Ranks, on
from tests.distributed.models import anomalies, backward, gradients, heard, make_ddp, make_model
from tests.distributed.test_sampling_plan import ODD
from tests.versions import HOOKS_GROUPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HOOKS_GROUPS, reason="this torch's process groups take no hooks"),
]

STEPS = 5
CAP_MB = 0.004
"""A bucket for each layer."""
LAYER = 32 * 32 + 32


class Told:
    """What is told of a run's steps, without its times.

    ``steps``: of each its number, rebuild, whether it is complete and a join_dummy, and of its
    buckets index, elements, bytes on the wire and stages.  ``names``: of each layout's parameters.
    """

    def __init__(self, tracer: Tracer) -> None:
        deadline = time.monotonic() + 30  # of join()'s all-reduces nobody waits for the callbacks
        while tracer.models.count_in_flight() and time.monotonic() < deadline:
            time.sleep(0.01)
        tracer.flush()
        recent = tracer._recent.steps()
        self.steps = [
            (
                *(step.step, step.rebuild, step.complete, step.join_dummy),
                tuple((b.bucket, b.numel, b.wire_bytes, _stages(b)) for b in buckets),
            )
            for step, buckets in recent
        ]
        self.exposed = [step.exposed_ns for step, _ in recent]
        self.times = [(b.ready_ns, b.launched_ns, b.done_ns) for _, bs in recent for b in bs]
        self.models = sorted({step.model for step, _ in recent})
        self.anomalies = [found.kind for found in anomalies(tracer)]
        self.losses = tracer.losses()


def _stages(bucket: Any) -> tuple[str, ...]:
    return tuple(stage.name for stage in bucket.stages if stage.name not in ("queue", "check"))


def _run(
    how: str, rank: int, script: Callable[..., Any], **options: Any
) -> tuple[Told | None, torch.Tensor]:
    """Return what is told of a script's model, and its gradients; ``how``: ddp, hook or hookless.

    ``ddp``: not traced.
    """
    ddp = make_ddp(CAP_MB, **options)
    with Tracer(error_every=0) as tracer:
        if how != "ddp":
            tracer.needs_hook = how == "hook"  # as on older torch
            instrument(ddp, tracer=tracer)
            assert hookless.is_watched(ddp) == (how == "hookless")
        script(ddp, rank)
        told = None if how == "ddp" else Told(tracer)
    dist.barrier()
    return told, gradients(ddp)


def _plain(ddp: DistributedDataParallel, rank: int) -> None:
    for step in range(STEPS):
        ddp.zero_grad()
        backward(ddp, rank, step)


def _accumulating(ddp: DistributedDataParallel, rank: int) -> None:
    for step in range(STEPS):
        ddp.zero_grad()
        with ddp.no_sync():
            backward(ddp, rank, step)
        backward(ddp, rank, step + 10)


def _joining(ddp: DistributedDataParallel, rank: int) -> None:
    """Rank 0 has two steps less."""
    with ddp.join():
        for step in range(STEPS + 2 * rank):
            ddp.zero_grad()
            backward(ddp, rank, step)


def _with_its_own(ddp: DistributedDataParallel, rank: int) -> None:
    """The script averages numbers of its own in backward, as large as buckets are, and a gradient.

    On one thread, from the parameters' own hooks, so in one order on all ranks.
    """

    def send(parameter: torch.Tensor) -> None:
        dist.all_reduce(torch.ones(LAYER), async_op=False)
        dist.all_reduce(parameter.grad.clone())  # type: ignore[union-attr]

    handles = [
        layer.weight.register_post_accumulate_grad_hook(send)  # type: ignore[union-attr]
        for layer in list(ddp.module.children())[:2]  # type: ignore[operator]
    ]
    _plain(ddp, rank)
    for handle in handles:
        handle.remove()


SCRIPTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "default": (_plain, {}),
    "bucket views": (_plain, {"gradient_as_bucket_view": True}),
    "find_unused": (_plain, {"find_unused_parameters": True}),
    "static graph": (_plain, {"static_graph": True}),
    "no_sync": (_accumulating, {}),
    "join": (_joining, {}),
    "its own collectives": (_with_its_own, {}),
    "its own, views": (_with_its_own, {"gradient_as_bucket_view": True}),
    "one bucket": (_plain, {"layers": 1, "gradient_as_bucket_view": True}),
}


def told(rank: int) -> dict[str, tuple[Told, Told, bool]]:
    """Return what is told without a hook and with one, and whether all gradients are the same."""
    found = {}
    for name, (script, options) in SCRIPTS.items():
        runs = {how: _run(how, rank, script, **options) for how in ("ddp", "hook", "hookless")}
        plain = runs["ddp"][1]
        same = all(torch.equal(plain, bits) for _, bits in runs.values())
        found[name] = (runs["hookless"][0], runs["hook"][0], same)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("name", SCRIPTS)
def test_records_are_those_of_the_averaging_hook(two: Ranks, name: str) -> None:
    """Steps, rebuilds, join_dummy, buckets, bytes and stages; and the gradients, bit by bit."""
    for found in two.run(told):
        mine, oracle, same_bits = found[name]
        assert mine.steps == oracle.steps
        assert (mine.models, mine.anomalies) == (oracle.models, oracle.anomalies)
        assert mine.losses == {}
        assert same_bits
        assert all(ready <= launched and ready < done for ready, launched, done in mine.times)
        for exposed, (_, _, _, join_dummy, _) in zip(mine.exposed, mine.steps, strict=True):
            assert join_dummy or exposed >= 0


@on(2)
def test_what_the_reducer_cannot_tell_has_a_hook(rank: int) -> None:
    """Sparse and complex gradients: their steps are recorded as ever."""
    for make, inputs in ODD.values():
        ddp = DistributedDataParallel(make())
        with Tracer(error_every=0) as tracer:
            instrument(ddp, tracer=tracer)
            assert not hookless.is_watched(ddp)
            for _ in range(STEPS):
                ddp(inputs()).abs().sum().backward()
            found = Told(tracer)
        dist.barrier()
        assert len(found.steps) == STEPS


@on(2)
def test_a_reducer_that_refuses_to_tell(rank: int) -> None:
    """The model has a hook then, which the log says."""
    ddp = make_ddp(CAP_MB)
    refusal = mock.patch.object(hookless.HooklessModel, "_ask", side_effect=RuntimeError("no"))
    with Tracer(error_every=0) as tracer, heard("does not list its buckets: no") as said:
        with refusal:
            instrument(ddp, tracer=tracer)
        assert not hookless.is_watched(ddp)
        _plain(ddp, rank)
        found = Told(tracer)
    dist.barrier()
    assert len(said) == 1
    assert found.models == ["model0"]
    assert len(found.steps) == STEPS


@on(2)
def test_two_models_alike_are_told_apart(rank: int) -> None:
    """In one group and one backward pass, from the first step on."""
    with Tracer(error_every=0) as tracer:
        first, second = make_ddp(CAP_MB), make_ddp(CAP_MB)
        instrument(first, tracer=tracer, model="first")
        instrument(second, tracer=tracer, model="second")
        for step in range(STEPS):
            for ddp in (first, second):
                ddp.zero_grad()
            torch.manual_seed(1000 * rank + step)
            loss = first(torch.randn(4, 32)).sum() + second(torch.randn(4, 32)).sum()
            loss.backward()
        found = Told(tracer)
    dist.barrier()
    assert found.models == ["first", "second"]
    assert len(found.steps) == 2 * STEPS
    assert all(complete for _, _, complete, *_ in found.steps)
    assert found.anomalies == []
    assert found.losses == {}


@on(2)
def test_a_scripts_own_hook_that_comes_later_is_not_traced(rank: int) -> None:
    """Which is said, once."""
    with Tracer(error_every=0) as tracer, heard("is not traced") as said:
        ddp = make_ddp(CAP_MB)
        instrument(ddp, tracer=tracer)
        _plain(ddp, rank)
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
        _plain(ddp, rank)
        tracer.flush()
        steps = len(tracer.steps())
    dist.barrier()
    assert len(said) == 1
    assert steps == STEPS


@on(2)
def test_a_traced_hook_that_comes_later_takes_over(rank: int) -> None:
    """Each step is recorded once."""
    with Tracer(error_every=0) as tracer:
        ddp = make_ddp(CAP_MB)
        instrument(ddp, tracer=tracer, model="first")
        _plain(ddp, rank)
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer, model="second")
        _plain(ddp, rank)
        found = Told(tracer)
    dist.barrier()
    assert found.models == ["first", "second"]
    assert len(found.steps) == 2 * STEPS


@on(2)
def test_a_gradient_that_is_not_finite_is_named(rank: int) -> None:
    """Rank 1's, of one layer, on that rank, in a step that is looked at."""
    with Tracer(error_every=2) as tracer:
        ddp = make_ddp(CAP_MB)
        instrument(ddp, tracer=tracer)
        layer: Any = list(ddp.module.children())[-1]
        if rank == 1:
            layer.bias.register_hook(lambda gradient: gradient * float("nan"))
        _plain(ddp, rank)
        tracer.flush()
        found = [(one.kind, one.step, one.parameter) for one in anomalies(tracer)]
    dist.barrier()
    assert (("nonfinite_gradient", 2, "5.bias") in found) == (rank == 1)


@on(2)
def test_nothing_is_left(rank: int) -> None:
    """Neither the model nor its group is held."""
    group = dist.new_group()
    ddp = DistributedDataParallel(make_model(), process_group=group, bucket_cap_mb=CAP_MB)
    with Tracer(error_every=0) as tracer:
        instrument(ddp, tracer=tracer)
        _plain(ddp, rank)
        tracer.flush()
    refs = [weakref.ref(one) for one in (ddp, group, hookless._models[ddp])]
    dist.barrier()
    del ddp
    gc.collect()
    dist.destroy_process_group(group)
    del group
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
