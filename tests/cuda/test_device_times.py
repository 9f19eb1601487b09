"""What a GPU is needed for: device times, and no synchronisation on the training thread."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, Tracer, hooks, trace

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module", autouse=True)
def nccl() -> Iterator[None]:
    """A NCCL group of one rank."""
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("nccl", init_method=f"file://{store.name}.pg", rank=0, world_size=1)
        yield
        hooktrace.shutdown()


def train(hook: Any, steps: int = 4) -> torch.Tensor:
    """Train a model of several buckets and return its gradients, still on the device."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()
    ddp = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=2)
    ddp.register_comm_hook(None, hook)
    for step in range(steps):
        torch.manual_seed(step)
        ddp.zero_grad()
        ddp(torch.randn(64, 512, device="cuda")).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hooks.allreduce_hook, default_hooks.allreduce_hook),
        (hooks.fp16_compress_hook, default_hooks.fp16_compress_hook),
        (hooks.bf16_compress_hook, default_hooks.bf16_compress_hook),
    ],
)
def test_device_spans_resolve(ours: Any, theirs: Any) -> None:
    """Every bucket has device stages in order and no host stages; gradients keep their bits."""
    reference = train(theirs)
    with Tracer() as tracer:
        traced = train(trace(ours, tracer=tracer))
        torch.cuda.synchronize()
        records, steps = tracer.buckets(), tracer.steps()
    assert torch.equal(traced, reference)
    assert len(steps) == 4
    for step in steps:
        assert step.clock == "device"
        assert step.exposed_ns is not None
    for record in records:
        assert record.stages == ()
        assert record.device is not None
        edges = [record.device.ready_ns, *[s.end_ns for s in record.device.stages]]
        assert edges == sorted(edges)
        assert edges[-1] == record.device.done_ns > record.device.ready_ns


def test_no_synchronisation() -> None:
    """Tracing adds no call that waits for the device."""
    with Tracer() as tracer:
        hook = trace(hooks.allreduce_hook, tracer=tracer)
        train(hook, steps=3)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            train_on_device_only(hook)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def train_on_device_only(hook: Any) -> None:
    """Run traced backward passes whose own code never waits for the device."""
    ddp = DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
    ddp.register_comm_hook(None, hook)
    for _ in range(3):
        ddp(torch.ones(8, 64, device="cuda")).sum().backward()


def test_a_multi_round_hook_on_a_device() -> None:
    """Chained rounds have a wire stage each, on the device's clock."""

    @hooktrace.staged(multi_round=True)
    def two_rounds(state: Any, bucket: Any) -> Iterator[Any]:
        first = yield AllReduce(bucket.buffer().clone())
        second = yield AllReduce(first)
        return bucket.buffer().copy_(second)

    with Tracer() as tracer:
        train(trace(two_rounds, tracer=tracer))
        torch.cuda.synchronize()
        for record in tracer.buckets():
            assert record.device is not None
            assert [s.name for s in record.device.stages if s.name == "wire"] == ["wire"] * 2


class _Heavy(torch.autograd.Function):
    """Backward work that keeps the device busy after the hooks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        square = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            square = square @ square / 4096
        return gradients[0] + 0 * square.sum()


def test_what_later_backward_hides_is_not_exposed() -> None:
    """A trunk's kernels run on when all buckets are there."""
    with Tracer(error_every=0) as tracer:
        ddp = DistributedDataParallel(nn.Linear(64, 64).cuda(), device_ids=[0])
        ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer))
        for _ in range(4):
            x = torch.ones(8, 64, device="cuda", requires_grad=True)
            ddp(_Heavy.apply(x)).sum().backward()
        torch.cuda.synchronize()
        assert [step.exposed_ns for step in tracer.steps()] == [0] * 4
