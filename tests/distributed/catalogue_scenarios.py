"""What the ranks do in ``test_catalogue.py``: every standard hook by name, traced and compiled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.hooks import DDPCommHookType
from tests.distributed.harness import scenario
from tests.distributed.models import backward, gradients, make_ddp, make_model
from tests.versions import BROADCASTS_COMPLEX


def resnet18_shapes() -> list[tuple[int, ...]]:
    """Return the parameter shapes of the ResNet-18 for CIFAR-10 of PowerSGD's authors."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            inputs = before if block == 0 else width
            shapes += [(width, inputs, 3, 3), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            if inputs != width:
                shapes += [(width, inputs, 1, 1), (width,), (width,)]
        before = width
    return [*shapes, (10, 512), (10,)]


class Shaped(nn.Module):
    """Parameters of given shapes, each with a gradient of its own."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.values = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in shapes)

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        """Return a loss whose gradients are the parameters, scaled."""
        return torch.stack([(factor * v.square()).sum() for v in self.values]).sum()


def paper_ratios(rank: int) -> dict[int, tuple[int, float]]:
    """Return (parameters, gradient bytes over measured wire bytes) by approximation rank."""
    facts = {}
    for columns in (1, 2, 4):
        torch.manual_seed(0)
        module = Shaped(resnet18_shapes())
        with Tracer() as tracer:
            ddp = DistributedDataParallel(module, bucket_cap_mb=4)
            state = hooks.PowerSGDState(None, columns, start_powerSGD_iter=2)
            hooktrace.instrument(ddp, hooks.powerSGD_hook, state, tracer=tracer)
            for step in range(3):
                ddp.zero_grad()
                ddp(torch.tensor(1.0 + rank + step)).backward()
            last = tracer.steps()[-1]
            assert last.bucket_count > 1
            facts[columns] = (
                last.gradient_bytes // 4,
                last.gradient_bytes / (last.wire_bytes or 0),
            )
    return facts


STATES: dict[str, Callable[[], Any]] = {
    "POWER_SGD": lambda: hooks.PowerSGDState(None, 1, 2),
    "POWER_SGD_RANK2": lambda: hooks.PowerSGDState(None, 2, 2),
    "BATCHED_POWER_SGD": lambda: hooks.PowerSGDState(None, 1, 2),
    "BATCHED_POWER_SGD_RANK2": lambda: hooks.PowerSGDState(None, 2, 2),
    "POST_LOCAL_SGD": lambda: hooks.PostLocalSGDState(None, dist.group.WORLD, 2),
}


def registered(rank: int) -> dict[str, dict[str, Any]]:
    """Register each hook by its type, with and without a tracer; return what came of it, by type.

    ``same``: the tracer changes no gradient.  ``stages``: of the last bucket.  ``plain``: the
    type's own call with a process group works; ``columns``: of the PowerSGD state it then makes.
    """
    facts = {}
    for member in DDPCommHookType:
        runs = []
        with Tracer() as tracer:
            for traced in (False, True):
                ddp = make_ddp(0.001)
                state = STATES.get(member.name, lambda: None)()
                hooks.register_ddp_comm_hook(member, ddp, state, tracer if traced else None)
                for step in range(5):
                    ddp.zero_grad()
                    backward(ddp, rank, step)
                runs.append(gradients(ddp))
            last = tracer.buckets()[-1]
        called = make_ddp()
        member.value(model=called, state=dist.group.WORLD)
        backward(called, rank, 0)
        ((hook, state),) = called._comm_hooks
        facts[member.name] = {
            "same": torch.equal(*runs),
            "finite": bool(runs[0].isfinite().all()),
            "stages": [stage.name for stage in last.stages if stage.name not in {"turn", "queue"}],
            "plain": bool(gradients(called).isfinite().all()),
            "hooks": {hook.__qualname__, last.hook},
            "columns": getattr(state, "matrix_approximation_rank", None),
        }
    return facts


class Complex(nn.Module):
    """A model with complex gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a real loss."""
        return (x.to(torch.complex64) @ self.weight).abs().sum()


def refusals(rank: int) -> dict[str, str]:
    """Return what registering says of states and models that hooks cannot work with."""
    sparse = nn.Sequential(nn.Embedding(4, 4, sparse=True), nn.Linear(4, 4))
    cases: dict[str, tuple[DDPCommHookType, nn.Module, Any]] = {
        "state": (DDPCommHookType.POWER_SGD, make_model(), object()),
        "group": (DDPCommHookType.ALLREDUCE, make_model(), "world"),
        "gossip": (DDPCommHookType.GOSSIP_GRAD, make_model(), object()),
        "complex": (DDPCommHookType.FP16_COMPRESS, Complex(), None),
        "sparse": (DDPCommHookType.QUANTIZE_PER_TENSOR, sparse, None),
        "powersgd sparse": (DDPCommHookType.POWER_SGD, sparse, None),
    }
    if not BROADCASTS_COMPLEX:
        del cases["complex"]
    facts = {}
    for name, (kind, module, state) in cases.items():
        for tracer in (None, Tracer()):
            try:
                hooks.register_ddp_comm_hook(kind, DistributedDataParallel(module), state, tracer)
                said = "nothing"
            except (TypeError, ValueError) as error:
                said = f"{type(error).__name__}: {error}"
            if tracer is not None:
                tracer.close()
            facts[f"{name}{'' if tracer is None else ' traced'}"] = said
    # Registered by DDP alone: the first backward pass says it.
    ddp = DistributedDataParallel(nn.Sequential(nn.Embedding(4, 4, sparse=True)))
    ddp.register_comm_hook(None, hooks.quantization_pertensor_hook)
    try:
        ddp(torch.tensor([rank])).sum().backward()
        facts["in backward"] = "nothing"
    except Exception as error:
        facts["in backward"] = str(error)
    dist.barrier()
    return facts


def halve(tensor: torch.Tensor) -> torch.Tensor:
    """Encode as bfloat16."""
    return tensor.to(torch.bfloat16)


def same(tensor: torch.Tensor) -> torch.Tensor:
    """Decode nothing."""
    return tensor


def encoded(rank: int) -> dict[str, Any]:
    """Run pickled hooks of encode_and_decode beside the one that they should equal."""
    plain = make_ddp()
    plain.register_comm_hook(None, hooks.allreduce_hook)
    backward(plain, rank, 0)
    facts: dict[str, Any] = {}
    for case, average, expected in (
        ("mean", True, gradients(plain)),
        ("sum", False, gradients(plain) * dist.get_world_size()),
    ):
        made = hooks.encode_and_decode(halve, same, average=average)
        copy = pickle.loads(pickle.dumps(made))
        ours = make_ddp()
        ours.register_comm_hook(None, copy)
        backward(ours, rank, 0)
        error = (gradients(ours) - expected).abs().max() / expected.abs().max()
        facts[case] = {"error": error.item(), "names": {made.__name__, copy.__name__}}
    return facts


SINGLE_ROUND = (
    *("ALLREDUCE", "FP16_COMPRESS", "BF16_COMPRESS", "ALLGATHER_THEN_AGGREGATE", "NOOP"),
    *("QUANTIZE_PER_TENSOR", "QUANTIZE_PER_CHANNEL"),
)
TRACED = {"staged": hooks.fp16_compress_hook, "opaque": default_hooks.fp16_compress_hook}


@scenario(deadline_s=240)
def compiled(rank: int) -> dict[str, Any]:
    """Return each single-round hook's difference under the compiled python reducer.

    That reducer calls the hook for each parameter, so quantisation is compared by its own error.
    Of traced hooks also the anomalies.
    """
    import torch._dynamo
    from torch._dynamo import compiled_autograd

    def run(hook: Callable[..., Any], reducer: str | bool) -> torch.Tensor:
        torch._dynamo.reset()
        torch._dynamo.config.optimize_ddp = reducer
        ddp = make_ddp(layers=1)
        ddp.register_comm_hook(None, hook)
        if reducer != "python_reducer":
            called, passes = ddp, nullcontext
        else:
            called = torch.compile(ddp, backend="eager")
            passes = partial(compiled_autograd._enable, torch.compile(backend="eager"))
        for step in range(2):
            ddp.zero_grad()
            with passes():
                backward(called, rank, step)
        return gradients(ddp)

    def difference(hook: Callable[..., Any], expected: torch.Tensor) -> float:
        return ((run(hook, "python_reducer") - expected).norm() / expected.norm()).item()

    facts: dict[str, Any] = {}
    before = torch._dynamo.config.optimize_ddp
    try:
        for name in SINGLE_ROUND:
            hook = DDPCommHookType[name].value.hook
            facts[name] = difference(hook, run(hook, before))
        expected = run(hooks.fp16_compress_hook, before)
        for name, hook in TRACED.items():
            with Tracer() as tracer:
                error = difference(hooktrace.trace(hook, tracer=tracer), expected)
                facts[name] = error, [a.kind for a in tracer.anomalies()]
    finally:
        torch._dynamo.config.optimize_ddp = before
        torch._dynamo.reset()
    return facts
