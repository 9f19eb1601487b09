"""On a device no hook lets go of memory that a stream still uses, and none waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from hooktrace import AllGather, AllReduce, Tracer, hooks, staged, trace
from hooktrace.staging.groups import group_of
from hooktrace.testing import FakeBucket

from .fake_device import FakeDevice

SHAPES = ((64, 32), (64,), (128, 64))
STEPS = 6


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """Four ranks, of which only this one exists; its collectives complete inline."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def power_sgd(**options: Any) -> Callable[[], hooks.PowerSGDState]:
    """Return what makes a state that compresses from the third step on."""
    return lambda: hooks.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, **options
    )


@staged
def top_k_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Send the largest tenth of the gradients; the indices stay here, across the yield."""
    group, buffer = group_of(state), bucket.buffer()
    values, indices = buffer.abs().topk(buffer.numel() // 10)
    gathered = yield AllGather(values, group)
    buffer.zero_().index_put_((indices,), gathered.mean(0))
    return buffer


@staged
def unfinished_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Hold a tensor in no variable: only the unfinished expression has it."""
    return (bucket.buffer() / 2).add_((yield AllReduce(bucket.buffer(), group_of(state))))


class Memory:
    """A hook's state that holds a tensor of each bucket, and replaces it after the yield."""

    process_group = None

    def __init__(self) -> None:
        self.residuals: dict[int, torch.Tensor] = {}


@staged
def replacing_hook(state: Memory, bucket: Any) -> Iterator[Any]:
    """Use what the state held at the yield, and put another tensor in its place."""
    index, buffer = bucket.index(), bucket.buffer()
    state.residuals.setdefault(index, buffer.clone())
    yield AllReduce(buffer, group_of(state))
    state.residuals[index] = state.residuals[index] + buffer
    return buffer


HOOKS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "allreduce": (hooks.allreduce_hook, lambda: None),
    "fp16": (hooks.fp16_compress_hook, lambda: None),
    "bf16": (hooks.bf16_compress_hook, lambda: None),
    "fp16 wrapper": (hooks.fp16_compress_wrapper(hooks.allreduce_hook), lambda: None),
    "bf16 wrapper of powerSGD": (
        hooks.bf16_compress_wrapper(hooks.powerSGD_hook),
        power_sgd(use_error_feedback=False),
    ),
    "all-gather": (hooks.allgather_then_aggregate_hook, lambda: None),
    "per tensor": (hooks.quantization_pertensor_hook, lambda: None),
    "per channel": (hooks.quantization_perchannel_hook, lambda: None),
    "powerSGD": (hooks.powerSGD_hook, power_sgd()),
    "powerSGD, nothing kept": (
        hooks.powerSGD_hook,
        power_sgd(use_error_feedback=False, warm_start=False),
    ),
    "batched powerSGD": (hooks.batched_powerSGD_hook, power_sgd()),
    "batched powerSGD, nothing kept": (
        hooks.batched_powerSGD_hook,
        power_sgd(use_error_feedback=False, warm_start=False),
    ),
    "gossip": (hooks.gossip_grad_hook, lambda: hooks.GossipGradState(None)),
    "local SGD": (
        hooks.post_localSGD_hook,
        lambda: hooks.PostLocalSGDState(None, dist.group.WORLD, 2),
    ),
    "top-k": (top_k_hook, lambda: None),
    "unfinished expression": (unfinished_hook, lambda: None),
    "replaced in the state": (replacing_hook, Memory),
}
FAULTY = (
    "batched powerSGD, nothing kept",
    "top-k",
    "unfinished expression",
    "replaced in the state",
)


def train(name: str, tracer: Tracer | None = None) -> None:
    """Run a hook, traced or not, on two buckets of fake gradients for some steps."""
    hook, make_state = HOOKS[name]
    if tracer is not None:
        hook = trace(hook, tracer=tracer)
    parameters = [torch.nn.Parameter(torch.empty(shape, device="cuda")) for shape in SHAPES]
    buckets = [
        FakeBucket(parameters[:1], 0, is_last=False),
        FakeBucket(parameters[1:], 1, is_last=True),
    ]
    state = make_state()
    for _ in range(STEPS):
        for bucket in buckets:
            hook(state, bucket).wait()


@pytest.mark.parametrize("name", HOOKS)
def test_memory_is_kept_until_its_streams_are_done(name: str) -> None:
    """Whatever a hook holds across a yield, in a variable or not; and nothing synchronises."""
    with FakeDevice() as device:
        train(name)
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", HOOKS)
def test_tracing_adds_no_synchronisation_and_no_fault(name: str) -> None:
    """Each call has its times on the device, and nothing else is other than untraced."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, run_id="fake") as tracer,
    ):
        train(name, tracer)
        tracer.flush()
        assert tracer.losses() == {}
        assert len(tracer.buckets()) == 2 * STEPS
        assert all(bucket.device is not None for bucket in tracer.buckets())
    assert device.faults() == []
    assert device.synchronising == []


@pytest.mark.parametrize("name", FAULTY)
def test_without_it_memory_is_given_out_too_early(name: str) -> None:
    """The same hooks, without what the driver does for them: the simulation sees it."""
    with FakeDevice(protected=False) as device:
        train(name)
    assert device.faults()
