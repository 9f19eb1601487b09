"""DDP models without a hook, on real gloo ranks (torch >= 2.14); the oracle is a hook."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, instrument
from hooktrace.staging import pass_end
from hooktrace.tracing import hookless
from tests.distributed.harness import on, scenario
from tests.distributed.models import (
    anomalies,
    backward,
    gradients,
    heard,
    make_ddp,
    make_model,
    make_steps,
)
from tests.ranks.channel.jobs import wait_for
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
    """What is told of a run; ``steps``: of each, and of its buckets, all but the times."""

    def __init__(self, tracer: Tracer) -> None:
        # A callback may come when DDP has gone on, after those of later steps even.
        begun = sum(model.step + 1 for model in tracer.models.all())
        wait_for(lambda: len(tracer.steps()) >= begun)
        recent = tracer._recent.steps()
        self.steps = [
            (
                *(step.step, step.rebuild, step.complete, step.join_dummy),
                tuple((b.bucket, b.numel, b.wire_bytes, _stages(b)) for b in buckets),
            )
            for step, buckets in recent
        ]
        self.recent = recent
        self.exposed = [step.exposed_ns for step, _ in recent]
        self.times = [(b.ready_ns, b.launched_ns, b.done_ns) for _, bs in recent for b in bs]
        self.models = sorted({step.model for step, _ in recent})
        self.anomalies = [found.kind for found in anomalies(tracer)]
        self.losses = tracer.losses()


def _stages(bucket: Any) -> tuple[str, ...]:
    return tuple(stage.name for stage in bucket.stages if stage.name not in ("queue", "check"))


def run(
    script: Callable[..., Any],
    rank: int,
    options: dict[str, Any],
    *,
    hook: Callable[..., Any] | None = None,
    is_traced: bool = True,
    is_timed: bool = True,
    needs_hook: bool = False,
) -> tuple[Told, torch.Tensor]:
    """Return what is told of a script's model, and its gradients.

    ``needs_hook``: the tracer averages by a hook where none is given, as on older torch.
    """
    ddp = make_ddp(CAP_MB, **options)
    all_timed = 100 if is_timed else 0
    with Tracer(error_every=0) as tracer, mock.patch.object(pass_end, "ALL_TIMED", all_timed):
        if is_traced:
            tracer.needs_hook = tracer.needs_hook or needs_hook
            instrument(ddp, hook, tracer=tracer)
        elif hook is not None:
            ddp.register_comm_hook(None, hook)
        assert (ddp in hookless.models) == (is_traced and not needs_hook and hook is None)
        script(ddp, rank)
        told = Told(tracer)
    dist.barrier()
    return told, gradients(ddp)


def _plain(ddp: DistributedDataParallel, rank: int) -> None:
    make_steps(ddp, rank, range(STEPS))


def _accumulating(ddp: DistributedDataParallel, rank: int) -> None:
    for step in range(STEPS):
        ddp.zero_grad()
        with ddp.no_sync():
            backward(ddp, rank, step)
        backward(ddp, rank, step + 10)


def _joining(ddp: DistributedDataParallel, rank: int) -> None:
    """Rank 0 has two steps less."""
    with ddp.join():
        make_steps(ddp, rank, range(STEPS + 2 * rank))


def _with_its_own(ddp: DistributedDataParallel, rank: int) -> None:
    """The script averages numbers of its own in backward, as large as buckets are."""

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


class Twice(torch.nn.Module):
    """Two stacks beside each other, each with an input and a loss of its own."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.stacks = torch.nn.ModuleList(make_model(layers // 2) for _ in range(2))

    def forward(self, *data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(stack(x).square().sum() for stack, x in zip(self.stacks, data, strict=True))


def _in_two_passes(ddp: DistributedDataParallel, rank: int) -> None:
    for step in range(STEPS):
        ddp.zero_grad()
        torch.default_generator.manual_seed(1000 * rank + step)
        first, second = ddp(torch.randn(4, 32), torch.randn(4, 32))
        second.backward()
        first.backward()


SCRIPTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "default": (_plain, {}),
    "bucket views": (_plain, {"gradient_as_bucket_view": True}),
    "find_unused": (_plain, {"find_unused_parameters": True}),
    "static graph": (_plain, {"static_graph": True}),
    "no_sync": (_accumulating, {}),
    "join": (_joining, {}),
    "its own collectives": (_with_its_own, {}),
    "one bucket": (_plain, {"layers": 1, "gradient_as_bucket_view": True}),
    "two passes a step": (_in_two_passes, {"make": Twice}),
}


@on(2)
@scenario(deadline_s=240)
def test_records_are_those_of_the_averaging_hook(rank: int) -> None:
    """Steps, rebuilds, join_dummy, buckets, bytes and stages; and the gradients, bit by bit."""
    for name, (script, options) in SCRIPTS.items():
        _, plain = run(script, rank, options, is_traced=False)
        oracle, hooked = run(script, rank, options, needs_hook=True)
        mine, bits = run(script, rank, options)
        assert mine.steps == oracle.steps, name
        assert (mine.models, mine.anomalies) == (oracle.models, oracle.anomalies), name
        assert mine.losses == {}, name
        assert torch.equal(plain, hooked), name
        assert torch.equal(plain, bits), name
        assert all(ready <= launched and ready < done for ready, launched, done in mine.times)
        rare, same_bits = run(script, rank, options, is_timed=False)
        assert rare.steps == [_as_not_timed(step) for step in oracle.steps], name
        assert (rare.models, rare.anomalies, rare.losses) == (mine.models, mine.anomalies, {}), name
        assert torch.equal(plain, same_bits), name
        for told in (mine, rare):
            for exposed, (_, _, _, join_dummy, _) in zip(told.exposed, told.steps, strict=True):
                assert join_dummy or exposed >= 0, name


def _as_not_timed(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a step as it is told without the stages of its buckets, unless it is a tenth."""
    *known, join_dummy, buckets = step
    if step[0] % 10 and not join_dummy:
        buckets = tuple((*of, ()) for *of, _ in buckets)
    return (*known, join_dummy, buckets)


ODD: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "sparse": (
        lambda: torch.nn.Sequential(torch.nn.Embedding(10, 8, sparse=True), torch.nn.Linear(8, 8)),
        lambda: torch.randint(0, 10, (4,)),
    ),
    "complex": (
        lambda: torch.nn.Linear(8, 8, dtype=torch.complex64),
        lambda: torch.randn(4, 8, dtype=torch.complex64),
    ),
    "refused": (make_model, lambda: torch.ones(4, 32)),
}
"""Models, and their inputs."""


@on(2)
def test_what_the_reducer_cannot_tell_has_a_hook(rank: int) -> None:
    """Sparse and complex gradients, and a refusal, which the log says: all steps are recorded."""
    refusal = mock.patch.object(hookless.HooklessModel, "_ask", side_effect=RuntimeError("no"))
    for name, (make, inputs) in ODD.items():
        ddp = DistributedDataParallel(make())
        with Tracer(error_every=1) as tracer, heard("does not list its buckets: no") as said:
            with refusal if name == "refused" else nullcontext():
                instrument(ddp, tracer=tracer)
            assert ddp not in hookless.models
            for _ in range(STEPS):
                ddp(inputs()).abs().sum().backward()
            found = Told(tracer)
        dist.barrier()
        assert len(found.steps) == STEPS
        assert tracer.losses() == {}
        checked = {bucket.numel for bucket in tracer.buckets() if bucket.error}
        assert (checked == {72}) == (name == "sparse")
        assert bool(checked) == (name != "complex")
        assert len(said) == (name == "refused")


@on(2)
def test_a_hook_that_comes_later(rank: int) -> None:
    """A traced one takes over; a script's own is not traced, which is said once."""
    for is_traced in (True, False):
        with Tracer(error_every=0) as tracer, heard("is not traced") as said:
            ddp = make_ddp(CAP_MB)
            instrument(ddp, tracer=tracer, model="first")
            _plain(ddp, rank)
            if is_traced:
                instrument(ddp, default_hooks.allreduce_hook, tracer=tracer, model="second")
            else:
                ddp.register_comm_hook(None, default_hooks.allreduce_hook)
            _plain(ddp, rank)
            found = Told(tracer)
        dist.barrier()
        assert found.models == ["first", "second"][: 1 + is_traced]
        assert len(found.steps) == STEPS * (1 + is_traced)
        assert len(said) == (not is_traced)
