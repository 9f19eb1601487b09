"""What the ranks do in ``test_optimizer_hooks.py``: step in the hook, or after backward."""

from __future__ import annotations

import functools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks
from torch.distributed.optim.functional_adam import _FunctionalAdam
from torch.distributed.optim.functional_adamw import _FunctionalAdamW
from torch.distributed.optim.functional_sgd import _FunctionalSGD
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer
from hooktrace.hooks import OptimizerHookState, hook_then_optimizer
from hooktrace.hooks.default import allreduce_hook, fp16_compress_hook
from tests.distributed.harness import scenario
from tests.distributed.models import anomalies, backward
from tests.distributed.optimizer_runs import (
    HOOKS,
    OPTIMIZERS,
    SGD,
    STEPS,
    equal_runs,
    message_of,
    overlapped,
    parameters,
    run,
    sequential,
    several_buckets,
)


@scenario(deadline_s=240)
def overlap(rank: int) -> dict[str, bool]:
    """Compare both ways: every hook, every optimizer, every mode."""
    cases: list[tuple[str, str, dict[str, bool]]] = [(h, "SGD default", {}) for h in HOOKS]
    cases += [("allreduce", o, {}) for o in OPTIMIZERS if o != "SGD default"]
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


Build = tuple[DistributedDataParallel, Any, Callable[[], object]]


def overlap_or_not(ours: bool, ddp: DistributedDataParallel, params: Any = None) -> Build:
    """Return a model, who holds its optimizer's options, and what steps after a backward pass."""
    (cls, options), params = SGD, ddp.parameters() if params is None else params
    if not ours:
        ddp.register_comm_hook(None, allreduce_hook)
        optimizer = cls(params, **options)
        return ddp, optimizer, optimizer.step
    state = OptimizerHookState.of(cls, params, **options)
    ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
    return ddp, state, lambda: None


def groups_and_schedules(ours: bool, rank: int) -> list[torch.Tensor]:
    """Train with two parameter groups and a scheduler."""
    ddp = several_buckets()
    named = dict(ddp.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for n, p in named.items() if "weight" in n]},
        {"params": [p for n, p in named.items() if "bias" in n], "weight_decay": 0.0, "lr": 0.001},
    ]
    ddp, owner, step = overlap_or_not(ours, ddp, groups)
    optimizers = owner.optimizers if ours else [owner]
    parts = [torch.optim.lr_scheduler.StepLR(o, 3, 0.5) for o in optimizers]
    return run(ddp, rank, lambda: [step(), *[part.step() for part in parts]])


def learning_rate(ours: bool, rank: int) -> list[torch.Tensor]:
    """Set the learning rate of all parameters in the middle."""
    ddp, owner, step = overlap_or_not(ours, several_buckets())
    seen = run(ddp, rank, step, range(STEPS // 2))
    for group in owner.param_groups:
        group["lr"] = 0.0005
    return seen + run(ddp, rank, step, range(STEPS // 2, STEPS))


def accumulation(ours: bool, rank: int) -> list[torch.Tensor]:
    """Accumulate two passes under no_sync before each third, which move nothing."""
    ddp, _, step = overlap_or_not(ours, several_buckets())
    seen = []
    for number in range(STEPS):
        ddp.zero_grad()
        before = parameters(ddp)
        with ddp.no_sync():
            backward(ddp, rank, 3 * number)
            backward(ddp, rank, 3 * number + 1)
        assert torch.equal(before, parameters(ddp))
        backward(ddp, rank, 3 * number + 2)
        step()
        seen.append(parameters(ddp))
    return seen


def out_of_data(ours: bool, rank: int) -> list[torch.Tensor]:
    """Run rank 0 out of data: its momentum, too, goes on as the others' does."""
    ddp, owner, step = overlap_or_not(ours, several_buckets())
    start = parameters(ddp)
    with ddp.join():
        run(ddp, rank, step, range(3 if rank == 0 else 6))
    if ours:
        buffers = [s["momentum_buffer"] for o in owner.optimizers for s in o.state.values()]
        momentum = torch.cat([b.flatten() for b in buffers])
        of_rank_0 = momentum.clone()
        dist.broadcast(of_rank_0, 0)
        assert torch.equal(momentum, of_rank_0)
    return [start, parameters(ddp)]


def channels_last(ours: bool, rank: int, *, view: bool = False) -> list[torch.Tensor]:
    """Train convolutions whose weights do not lie in the order of their shape."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
    model = model.to(memory_format=torch.channels_last)
    ddp, _, step = overlap_or_not(
        ours, DistributedDataParallel(model, gradient_as_bucket_view=view)
    )
    seen = []
    for number in range(STEPS):
        torch.manual_seed(1000 * rank + number)
        ddp.zero_grad()
        images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        ddp(images).square().mean().backward()
        step()
        seen.append(parameters(ddp))
    return seen


WAYS: dict[str, Callable[[bool, int], list[torch.Tensor]]] = {
    "groups and schedulers": groups_and_schedules,
    "learning rate": learning_rate,
    "accumulated gradients": accumulation,
    "a rank without data": out_of_data,
    "channels last": channels_last,
    "channels last, views": functools.partial(channels_last, view=True),
}


def both_ways(rank: int) -> dict[str, bool]:
    """Return by way of training whether steps in the hook and after it give the same bits."""
    return {name: equal_runs(train(True, rank), train(False, rank)) for name, train in WAYS.items()}


def resume(rank: int) -> dict[str, bool]:
    """Save in the middle and go on with a new model, a new optimizer and the saved state."""
    facts = {}
    for name in ("SGD default", "AdamW default"):
        cls, options = OPTIMIZERS[name]
        straight = overlapped(rank, allreduce_hook, cls, options)
        saved: bytes | None = None
        for steps in (range(STEPS // 2), range(STEPS // 2, STEPS)):
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
        facts[name] = equal_runs(seen, straight[STEPS // 2 :])
    return facts


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
                tuple(s.name for s in b.stages if s.name not in {"probe", "turn", "queue"})
                for b in tracer.buckets()
            },
            "anomalies": anomalies(tracer),
        }


class Failing:
    """A functional optimizer that fails."""

    def step_param(self, param: torch.Tensor, grad: torch.Tensor) -> None:
        raise ArithmeticError("no step today")


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
