"""What the ranks do in ``test_optimizer_hooks.py``: step in the hook, or after backward."""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, optimizer_overlap_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.optim.functional_adam import _FunctionalAdam
from torch.distributed.optim.functional_adamw import _FunctionalAdamW
from torch.distributed.optim.functional_sgd import _FunctionalSGD
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllGather, AllReduce, Tracer
from hooktrace.driver import staged
from hooktrace.groups import group_of
from hooktrace.hooks.default import allreduce_hook, fp16_compress_hook
from hooktrace.hooks.optimizer import OptimizerHookState, hook_then_optimizer
from hooktrace.hooks.zero import hook_with_zero_step, hook_with_zero_step_interleaved
from tests.distributed.models import backward, gradients, make_ddp

several_buckets = functools.partial(make_ddp, bucket_cap_mb=0.001)

STEPS = 20
SGD = (torch.optim.SGD, {"lr": 0.003, "momentum": 0.9, "weight_decay": 0.01})

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    f"{cls.__name__} {name}": (cls, {**options, **implementation})
    for cls, options in [
        SGD,
        (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": 0.01}),
    ]
    for name, implementation in [
        ("default", {}),
        ("foreach", {"foreach": True}),
        ("fused", {"fused": True}),
    ]
}


@staged
def gathering_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Average into a tensor of its own, and leave another buffer in the bucket."""
    payload = bucket.buffer().to(torch.float16)
    bucket.set_buffer(payload)
    gathered = yield AllGather(payload, group_of(state))
    return gathered.float().mean(0)


@staged(multi_round=True)
def twice_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Average twice, after random delays that differ between ranks."""
    group = group_of(state)
    buffer = bucket.buffer()
    for _ in range(2):
        time.sleep(random.random() * 0.001)
        buffer = yield AllReduce(buffer / group.size(), group)
    return buffer


HOOKS: dict[str, Callable[..., Any]] = {
    "allreduce": allreduce_hook,
    "fp16": fp16_compress_hook,
    "torch's allreduce": default_hooks.allreduce_hook,
    "torch's fp16": default_hooks.fp16_compress_hook,
    "another tensor": gathering_hook,
    "multi-round": twice_hook,
}


def parameters(ddp: nn.Module) -> torch.Tensor:
    """Return all parameters, flat."""
    return torch.cat([p.detach().flatten() for p in ddp.parameters()])


def equal_runs(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    """Return whether two runs went through the same bits, and went anywhere."""
    moved = not torch.equal(left[0], left[-1])
    return moved and len(left) == len(right) and all(map(torch.equal, left, right))


def run(
    ddp: DistributedDataParallel,
    rank: int,
    step: Callable[[], object] = lambda: None,
    steps: Iterable[int] = range(STEPS),
) -> list[torch.Tensor]:
    """Train with ``step`` after each backward; return parameters and gradients after each."""
    seen = []
    for number in steps:
        ddp.zero_grad()
        backward(ddp, rank, number)
        step()
        seen.append(torch.cat([parameters(ddp), gradients(ddp)]))
    return seen


def sequential(
    rank: int, hook: Callable[..., Any], cls: Any, options: dict[str, Any], **modes: Any
) -> list[torch.Tensor]:
    """Step after backward."""
    ddp = several_buckets(**modes)
    ddp.register_comm_hook(None, hook)
    return run(ddp, rank, cls(ddp.parameters(), **options).step)


def overlapped(
    rank: int, hook: Callable[..., Any], cls: Any, options: dict[str, Any], **modes: Any
) -> list[torch.Tensor]:
    """Step in the hook."""
    ddp = several_buckets(**modes)
    state = OptimizerHookState.of(cls, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(hook, state))
    return run(ddp, rank)


def overlap(rank: int) -> dict[str, bool]:
    """Compare both ways: every hook with SGD and AdamW, every optimizer, every mode."""
    cases = [(h, o, {}) for h in HOOKS for o in ("SGD default", "AdamW default")]
    cases += [("allreduce", optimizer, {}) for optimizer in OPTIMIZERS]
    cases += [
        (hook, "SGD default", {mode: True})
        for hook in ("allreduce", "another tensor", "multi-round")
        for mode in ("static_graph", "gradient_as_bucket_view", "find_unused_parameters")
    ]
    facts = {}
    for hook, optimizer, modes in cases:
        arguments = (rank, HOOKS[hook], *OPTIMIZERS[optimizer])
        facts[f"{hook}, {optimizer}, {[*modes]}"] = equal_runs(
            overlapped(*arguments, **modes), sequential(*arguments, **modes)
        )
    return facts


def functional(rank: int) -> dict[str, tuple[bool, bool]]:
    """Compare functional optimizers: with torch's own overlap, and with stepping afterwards."""
    facts = {}
    adam = {"lr": 0.01, "weight_decay": 0.01}
    for cls, ordinary, options in [
        (_FunctionalSGD, *SGD),
        (_FunctionalAdam, torch.optim.Adam, adam),
        (_FunctionalAdamW, torch.optim.AdamW, adam),
    ]:
        for name in ("allreduce", "fp16", "torch's allreduce"):
            runs = []
            for ours in (True, False):
                ddp = several_buckets()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    optimizer = cls(list(ddp.parameters()), **options)
                if ours:
                    state = OptimizerHookState(optimizer)
                    hook: Any = hook_then_optimizer(HOOKS[name], state)
                else:
                    theirs = optimizer_overlap_hooks._OptimizerHookState(optimizer)
                    hook = optimizer_overlap_hooks._hook_then_optimizer(HOOKS[name], theirs)
                ddp.register_comm_hook(None, hook)
                runs.append(run(ddp, rank))
            after = sequential(rank, HOOKS[name], ordinary, options)
            facts[f"{cls.__name__} {name}"] = (
                equal_runs(runs[0], runs[1]),
                equal_runs(runs[0], after),
            )
    return facts


def subset(rank: int) -> dict[str, bool]:
    """Step the weights only, by ``params`` and by ``of``; the biases stay."""
    facts = {}
    reference = several_buckets()
    reference.register_comm_hook(None, allreduce_hook)
    weights = [p for n, p in reference.named_parameters() if "weight" in n]
    expected = run(reference, rank, torch.optim.SGD(weights, lr=0.003).step)
    for name in ("params", "of"):
        ddp = several_buckets()
        weights = [p for n, p in ddp.named_parameters() if "weight" in n]
        biases = [p.detach().clone() for n, p in ddp.named_parameters() if "bias" in n]
        if name == "params":
            functional_sgd = _FunctionalSGD(list(ddp.parameters()), lr=0.003)
            state = OptimizerHookState(functional_sgd, iter(weights))
        else:
            state = OptimizerHookState.of(torch.optim.SGD, weights, lr=0.003)
        ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        same = equal_runs(run(ddp, rank), expected)
        still = [p for n, p in ddp.named_parameters() if "bias" in n]
        facts[name] = same and all(map(torch.equal, still, biases))
    return facts


def groups_and_schedules(rank: int) -> bool:
    """Train with two parameter groups and a scheduler, both ways."""
    runs = []
    for ours in (True, False):
        ddp = several_buckets()
        groups = [
            {"params": [p for n, p in ddp.named_parameters() if "weight" in n]},
            {
                "params": [p for n, p in ddp.named_parameters() if "bias" in n],
                "weight_decay": 0.0,
                "lr": 0.001,
            },
        ]
        cls, options = SGD
        if ours:
            state = OptimizerHookState.of(cls, groups, **options)
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
            optimizers = state.optimizers
        else:
            ddp.register_comm_hook(None, allreduce_hook)
            optimizers = [cls(groups, **options)]
        schedulers = [torch.optim.lr_scheduler.StepLR(o, 3, 0.5) for o in optimizers]
        parts = [*schedulers] if ours else [*optimizers, *schedulers]
        runs.append(run(ddp, rank, functools.partial(_step_all, parts)))
    return equal_runs(*runs)


def _step_all(parts: list[Any]) -> None:
    for part in parts:
        part.step()


def learning_rate(rank: int) -> bool:
    """Set the learning rate of all parameters in the middle, both ways."""
    runs = []
    for ours in (True, False):
        ddp = several_buckets()
        if ours:
            owner: Any = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, owner))
        else:
            owner = SGD[0](ddp.parameters(), **SGD[1])
            ddp.register_comm_hook(None, allreduce_hook)
        step = (lambda: None) if ours else owner.step
        seen = run(ddp, rank, step, range(10))
        for group in owner.param_groups:
            group["lr"] = 0.0005
        runs.append(seen + run(ddp, rank, step, range(10, STEPS)))
    return equal_runs(*runs)


def accumulation(rank: int) -> tuple[bool, bool]:
    """Accumulate two passes under no_sync before each third; also: no step under no_sync."""
    runs = []
    still = True
    for ours in (True, False):
        ddp = several_buckets()
        step: Callable[[], object] = lambda: None  # noqa: E731
        if ours:
            state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        else:
            ddp.register_comm_hook(None, allreduce_hook)
            step = SGD[0](ddp.parameters(), **SGD[1]).step
        seen = []
        for number in range(STEPS):
            ddp.zero_grad()
            before = parameters(ddp)
            with ddp.no_sync():
                backward(ddp, rank, 3 * number)
                backward(ddp, rank, 3 * number + 1)
            still = still and torch.equal(before, parameters(ddp))
            backward(ddp, rank, 3 * number + 2)
            step()
            seen.append(parameters(ddp))
        runs.append(seen)
    return equal_runs(*runs), still


def resume(rank: int) -> dict[str, bool]:
    """Save in the middle and go on with a new model, a new optimizer and the saved state."""
    facts = {}
    for name in ("SGD default", "AdamW default"):
        cls, options = OPTIMIZERS[name]
        straight = overlapped(rank, allreduce_hook, cls, options)
        saved: bytes | None = None
        for steps in (range(10), range(10, STEPS)):
            ddp = several_buckets()
            state = OptimizerHookState.of(cls, ddp.parameters(), **options)
            # Its first pass has other buckets; the sum over two ranks does not depend on them.
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
            if saved is not None:
                model, optimizer = pickle.loads(saved)
                ddp.load_state_dict(model)
                state.load_state_dict(optimizer)
            seen = run(ddp, rank, steps=steps)
            saved = pickle.dumps((ddp.state_dict(), state.state_dict()))
        facts[name] = equal_runs(seen, straight[10:])
    return facts


def join(rank: int) -> tuple[bool, torch.Tensor]:
    """Run rank 0 out of data; return (like sequential, momentum): all ranks must keep step."""
    runs, momentum = [], torch.empty(0)
    for ours in (True, False):
        ddp = several_buckets()
        step: Callable[[], object] = lambda: None  # noqa: E731
        if ours:
            state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        else:
            ddp.register_comm_hook(None, allreduce_hook)
            step = SGD[0](ddp.parameters(), **SGD[1]).step
        start = parameters(ddp)
        with ddp.join():
            run(ddp, rank, step, range(3 if rank == 0 else 6))
        runs.append([start, parameters(ddp)])
        if ours:
            buffers = [s["momentum_buffer"] for o in state.optimizers for s in o.state.values()]
            momentum = torch.cat([b.flatten() for b in buffers])
    return equal_runs(*runs), momentum


class HalfUsed(nn.Module):
    """A model one of whose layers takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def unused(rank: int) -> tuple[bool, bool]:
    """Return whether unused parameters decay as with zero gradients, and stay in sequence."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(HalfUsed(), find_unused_parameters=True)
    options = {"lr": 0.5, "weight_decay": 0.5}
    state = OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
    start = ddp.module.unused.weight.detach().clone()
    backward(ddp, rank, 0, width=8)
    weight = ddp.module.unused.weight
    return torch.equal(weight, start - 0.5 * (0.5 * start)), weight.grad is None


def channels_last(rank: int) -> dict[str, bool]:
    """Train convolutions whose weights do not lie in the order of their shape, both ways."""
    facts = {}
    for view in (False, True):
        runs = []
        for ours in (True, False):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
            ddp = DistributedDataParallel(
                model.to(memory_format=torch.channels_last), gradient_as_bucket_view=view
            )
            step: Callable[[], object] = lambda: None  # noqa: E731
            if ours:
                state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
                ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
            else:
                ddp.register_comm_hook(None, allreduce_hook)
                step = SGD[0](ddp.parameters(), **SGD[1]).step
            seen = []
            for number in range(STEPS):
                torch.manual_seed(1000 * rank + number)
                ddp.zero_grad()
                images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
                ddp(images).square().mean().backward()
                step()
                seen.append(parameters(ddp))
            runs.append(seen)
        facts[f"view={view}"] = equal_runs(*runs)
    return facts


def traced(rank: int) -> dict[str, Any]:
    """Trace an overlapped run; return what was recorded, and whether the bits are the same."""
    with Tracer() as tracer:
        ddp = several_buckets()
        state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
        hooktrace.instrument(ddp, hook_then_optimizer(fp16_compress_hook, state), tracer=tracer)
        seen = run(ddp, rank)
        buckets = [s.bucket_count for s in tracer.steps()]
        return {
            "same": equal_runs(seen, sequential(rank, fp16_compress_hook, *SGD)),
            "hooks": {b.hook for b in tracer.buckets()},
            "steps": len(buckets),
            "buckets": buckets[-1],
            "recorded": [sum(b.step == s for b in tracer.buckets()) for s in range(STEPS)]
            == buckets,
            "stages": {
                tuple(s.name for s in b.stages if s.name != "queue") for b in tracer.buckets()
            },
            "anomalies": list(tracer.anomalies()),
        }


def pickled(rank: int) -> bool:
    """Pickle a model with its hook; the copy steps its own parameters, as the original does."""
    ddp = several_buckets()
    state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
    ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
    run(ddp, rank, steps=range(5))
    copy = pickle.loads(pickle.dumps(ddp))
    ((hook, hook_state),) = copy._comm_hooks
    copy._comm_hooks.clear()
    copy.register_comm_hook(hook_state, hook)
    return equal_runs(run(copy, rank), run(ddp, rank))


class Failing:
    """A functional optimizer that fails."""

    def step_param(self, param: torch.Tensor, grad: torch.Tensor) -> None:
        raise ArithmeticError("no step today")


def message_of(action: Callable[[], object]) -> tuple[str, str]:
    """Return type and message of the exception that an action raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def refusals(rank: int) -> dict[str, str]:
    """Return the messages out of backward where a bucket cannot be stepped."""
    facts = {}
    for name, model in [
        ("failing", nn.Linear(4, 4)),
        ("sparse", nn.Embedding(8, 4, sparse=True)),
    ]:
        ddp = DistributedDataParallel(model)
        state = (
            OptimizerHookState(Failing())
            if name == "failing"
            else OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), lr=0.1)
        )
        ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        data = torch.ones(2, 4) if name == "failing" else torch.tensor([1, 2])
        facts[name] = message_of(functools.partial(_pass, ddp, data))[1]
    facts["compiled"] = _compiled()
    return facts


def _pass(ddp: nn.Module, data: torch.Tensor) -> None:
    ddp(data).sum().backward()


def _compiled() -> str:
    """Run under the compiled python reducer."""
    import torch._dynamo
    from torch._dynamo import compiled_autograd

    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = "python_reducer"
    try:
        ddp = several_buckets()
        state = OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), lr=0.1)
        ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        compiled = torch.compile(ddp, backend="eager")
        with compiled_autograd._enable(torch.compile(backend="eager")):
            return message_of(functools.partial(_pass, compiled, torch.ones(4, 32)))[1]
    finally:
        torch._dynamo.config.optimize_ddp = True
        torch._dynamo.reset()


FACTORIES = (hook_with_zero_step, hook_with_zero_step_interleaved)


def zero_errors(rank: int) -> dict[str, list[tuple[str, str]]]:
    """Return what each way of asking for ZeRO raises on real gloo ranks, before registration."""
    ddp = several_buckets()
    channels = DistributedDataParallel(nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last))

    def zero(
        params: Any = None, overlap_with_ddp: bool = True, **options: Any
    ) -> ZeroRedundancyOptimizer:
        params = ddp.parameters() if params is None else params
        cls = torch.optim.SGD
        return ZeroRedundancyOptimizer(
            params, cls, overlap_with_ddp=overlap_with_ddp, lr=0.1, **options
        )

    first, *others = ddp.parameters()
    with contextlib.closing(Tracer()) as tracer:
        cases: dict[str, tuple[Any, Any, Any]] = {
            "gloo": (fp16_compress_hook, ddp, zero()),
            "no overlap": (allreduce_hook, ddp, zero(overlap_with_ddp=False)),
            "groups": (allreduce_hook, ddp, zero([{"params": [first]}, {"params": others}])),
            "no DDP": (allreduce_hook, ddp.module, zero()),
            "no ZeRO": (allreduce_hook, ddp, torch.optim.SGD(ddp.parameters(), lr=0.1)),
            "no hook": (3, ddp, zero()),
            "traced": (hooktrace.trace(allreduce_hook, tracer=tracer), ddp, zero()),
            "channels_last": (allreduce_hook, channels, zero(channels.parameters())),
        }
        return {
            name: [message_of(functools.partial(factory, *case)) for factory in FACTORIES]
            for name, case in cases.items()
        }


def zero_alone(rank: int) -> dict[str, Any]:
    """Step with ZeRO in groups of one rank on torch's fake backend, whose collectives do nothing.

    A sum over one rank needs none, so results are exact; nothing is said about a real backend.
    """
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers the backend

    alone = [dist.new_group([other], backend="fake") for other in range(2)][rank]
    cases = [
        (factory, hook, shard)
        for factory in FACTORIES
        for hook in (allreduce_hook, gathering_copy_hook)
        for shard in (False, True)
    ]
    if rank != 0:
        return {
            str(case): message_of(functools.partial(_train_with_zero, alone, *case))
            for case in cases
        }
    return dict(_train_with_zero(alone, *case) for case in cases)


def _train_with_zero(
    group: dist.ProcessGroup, factory: Callable[..., Any], hook: Callable[..., Any], shard: bool
) -> tuple[str, dict[str, Any]]:
    cls, options = SGD
    ddp = several_buckets(process_group=group)
    zero = ZeroRedundancyOptimizer(
        ddp.parameters(), cls, process_group=group, overlap_with_ddp=True, **options
    )
    made = factory(hook, ddp, zero, shard)
    with Tracer() as tracer:
        ddp.register_comm_hook(group, hooktrace.trace(made, tracer=tracer))
        start = parameters(ddp)
        seen = run(ddp, 0)
        recorded = len(tracer.steps())
    reference = several_buckets(process_group=group)
    reference.register_comm_hook(group, allreduce_hook)
    optimizer = cls(reference.parameters(), **options)
    run(reference, 0, steps=range(2))
    expected = run(reference, 0, optimizer.step, range(2, STEPS))
    return f"{made.__qualname__} {shard}", {
        "named alike": made.__name__ == made.__qualname__,
        "first two step nothing": torch.equal(seen[1][: start.numel()], start),
        "same": equal_runs(seen[2:], expected),
        "steps recorded": recorded,
        "pickles": message_of(functools.partial(pickle.dumps, made))[0] == "",
    }


@staged
def gathering_copy_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Return the sum in a tensor of its own, with garbage in the bucket and its buffer."""
    buffer = bucket.buffer()
    total = yield AllReduce(buffer.clone(), group_of(state))
    buffer.fill_(99)
    bucket.set_buffer(torch.full_like(buffer, 77))
    return total
