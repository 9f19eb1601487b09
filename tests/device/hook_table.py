"""Hooks of all kinds, standard and made up, and the state of each: what runs on fake devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from hooktrace import AllGather, AllReduce, Tracer, hooks, staged, trace
from hooktrace.staging.groups import group_of
from hooktrace.testing import FakeBucket

SHAPES = ((64, 32), (64,), (128, 64))


def fake_parameters() -> list[torch.nn.Parameter]:
    """Return parameters on the device, which live longer than training."""
    return [torch.nn.Parameter(torch.empty(shape, device="cuda")) for shape in SHAPES]


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


def dictionary_asked_for() -> Memory:
    """Return a state of which somebody has asked the dictionary, as pickling it does."""
    state = Memory()
    vars(state)
    return state


@staged
def replacing_hook(state: Memory, bucket: Any) -> Iterator[Any]:
    """Use what the state held at the yield, and put another tensor in its place."""
    index, buffer = bucket.index(), bucket.buffer()
    if index not in state.residuals or len(state.residuals[index]) != len(buffer):  # built anew
        state.residuals[index] = buffer.clone()
    yield AllReduce(buffer, group_of(state))
    state.residuals[index] = state.residuals[index] + buffer
    return buffer


class Unseen(AllReduce):
    """An all-reduce that can say nothing of itself."""

    __slots__ = ()

    def describe(self) -> None:
        """Return ``None``."""


@staged(multi_round=True)
def unseen_payload_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Send in a first round what is known, and in a second what is not, as of sparse gradients."""
    yield AllReduce(bucket.buffer(), group_of(state))
    return (yield Unseen(bucket.buffer(), group_of(state)))


def plain_hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP takes no annotation but its own
    """Do what torch's own average does, with a future of which only the end is seen."""
    buffer = bucket.buffer().div_(4)
    work = dist.all_reduce(buffer, async_op=True)
    return work.get_future().then(lambda _: buffer)


class SubtractGradients(hooks.OptimizerHookState):
    """The simplest optimizer of any model, with steps so small that nothing becomes infinite."""

    @torch.no_grad()
    def step(self, bucket: Any) -> None:
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            parameter.sub_(gradient, alpha=1e-5)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "fp16 wrapper": hooks.fp16_compress_wrapper,
    "bf16 wrapper": hooks.bf16_compress_wrapper,
    "then optimizer": lambda hook: hooks.hook_then_optimizer(hook, SubtractGradients({})),
}

KINDS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "one round": (hooks.allreduce_hook, lambda: None),
    "several rounds": (hooks.powerSGD_hook, power_sgd(use_error_feedback=False)),
    "a round that is not seen": (unseen_payload_hook, lambda: None),
    "plain": (plain_hook, lambda: None),
}

WRAPPED = {
    f"{outer} of {kind}": (wrap(hook), make_state)
    for outer, wrap in WRAPPERS.items()
    for kind, (hook, make_state) in KINDS.items()
}
"""Each wrapper around each kind of hook."""

HOOKS: dict[str, tuple[Any, Callable[[], Any]]] = {
    **KINDS,
    **WRAPPED,
    "fp16": (hooks.fp16_compress_hook, lambda: None),
    "bf16": (hooks.bf16_compress_hook, lambda: None),
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
    "replaced in its dictionary": (replacing_hook, dictionary_asked_for),
}


def training(
    name: str,
    parameters: list[torch.nn.Parameter],
    tracer: Tracer | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> Callable[[int], None]:
    """Return what makes so many steps of a hook, traced or not, on two buckets."""
    hook, make_state = HOOKS[name]
    if tracer is not None:
        hook = trace(hook, tracer=tracer)
    buckets = [
        FakeBucket(parameters[:1], 0, is_last=False),
        FakeBucket(parameters[1:], 1, is_last=True),
    ]
    state = make_state()

    def run(steps: int) -> None:
        for _ in range(steps):
            for bucket in buckets:
                hook(state, bucket).wait()
            after_step()

    return run
