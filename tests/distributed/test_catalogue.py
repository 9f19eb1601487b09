"""Every standard hook by name, on 2 real gloo ranks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.hooks import DDPCommHookType
from tests.distributed.harness import on
from tests.distributed.models import backward, gradients, make_ddp, make_model

pytestmark = pytest.mark.slow


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
        return torch.stack([(factor * v.square()).sum() for v in self.values]).sum()


@on(2)
def test_powersgd_gives_the_papers_compression(rank: int) -> None:
    """On the authors' ResNet-18, from measured wire bytes."""
    for columns, ratio in ((1, 243.3), (2, 135.8), (4, 72.1)):
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
        assert last.gradient_bytes == 4 * 11_173_962
        assert last.compression_ratio == pytest.approx(ratio, abs=0.05)


STATES: dict[str, Callable[[], Any]] = {
    "POWER_SGD": lambda: hooks.PowerSGDState(None, 1, 2),
    "POWER_SGD_RANK2": lambda: hooks.PowerSGDState(None, 2, 2),
    "BATCHED_POWER_SGD": lambda: hooks.PowerSGDState(None, 1, 2),
    "BATCHED_POWER_SGD_RANK2": lambda: hooks.PowerSGDState(None, 2, 2),
    "POST_LOCAL_SGD": lambda: hooks.PostLocalSGDState(None, dist.group.WORLD, 2),
}


def stages_of(member: DDPCommHookType) -> list[str]:
    rounds = 2 if "SGD" in member.name and member is not DDPCommHookType.POST_LOCAL_SGD else 1
    if member is DDPCommHookType.NOOP:
        return ["compress"]
    return ["compress", *["wire", "compress"] * (rounds - 1), "wire", "decompress"]


@on(2)
def test_each_hook_registers_by_its_type(rank: int) -> None:
    """It is that type's hook, traced or not the gradients are the same, and the stages are its.

    The type's own call with a process group works too.
    """
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
        assert torch.equal(*runs), member
        assert runs[0].isfinite().all(), member
        found = [
            stage.name for stage in last.stages if stage.name not in {"serialization_wait", "queue"}
        ]
        assert found == stages_of(member), member
        called = make_ddp()
        member.value(model=called, state=dist.group.WORLD)
        backward(called, rank, 0)
        assert gradients(called).isfinite().all(), member
        ((hook, state),) = called._comm_hooks
        assert {hook.__qualname__, last.hook} == {member.value.hook_name}
        columns = (2 if "RANK2" in member.name else 1) if "POWER" in member.name else None
        assert getattr(state, "matrix_approximation_rank", None) == columns, member


@on(2)
def test_what_cannot_work_is_refused_at_registration(rank: int) -> None:
    """Traced or not, with what to do; more: ``staging/test_hook_checks.py``."""
    sparse = nn.Sequential(nn.Embedding(4, 4, sparse=True), nn.Linear(4, 4))
    cases: tuple[tuple[DDPCommHookType, nn.Module, Any, str], ...] = (
        (DDPCommHookType.POWER_SGD, make_model(), object(), "a object.*hooks.PowerSGDState"),
        (
            DDPCommHookType.ALLREDUCE,
            make_model(),
            "world",
            "state is a str.*register the hook with",
        ),
        (DDPCommHookType.QUANTIZE_PER_TENSOR, sparse, None, "those of 0 are sparse; use allreduce"),
    )
    with Tracer() as tracer:
        for kind, module, state, said in cases:
            for traced in (None, tracer):
                ddp = DistributedDataParallel(module)
                with pytest.raises(TypeError, match=rf"(?s){said}"):
                    hooks.register_ddp_comm_hook(kind, ddp, state, traced)
    # Registered by DDP alone: the first backward pass says it.
    ddp = DistributedDataParallel(nn.Sequential(nn.Embedding(4, 4, sparse=True)))
    ddp.register_comm_hook(None, hooks.quantization_pertensor_hook)
    where = "hook 'quantization_pertensor_hook', bucket 0, stage compress: TypeError"
    with pytest.raises(Exception, match=rf"(?s){where}.*bucket 0 are sparse; use allreduce_hook"):
        ddp(torch.tensor([rank])).sum().backward()
    dist.barrier()


def halve(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16)


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@on(2)
def test_encode_and_decode_make_a_hook(rank: int) -> None:
    """A bfloat16 encoding errs by its rounding, of a gradient and of the sum; it pickles."""
    plain = make_ddp()
    plain.register_comm_hook(None, hooks.allreduce_hook)
    backward(plain, rank, 0)
    for average, factor in ((True, 1), (False, dist.get_world_size())):
        made = hooks.encode_and_decode(halve, same, average=average)
        copy = pickle.loads(pickle.dumps(made))
        ours = make_ddp()
        ours.register_comm_hook(None, copy)
        backward(ours, rank, 0)
        expected = factor * gradients(plain)
        error = (gradients(ours) - expected).abs().max() / expected.abs().max()
        assert 0 < error <= 2 * 2**-8
        assert {made.__name__, copy.__name__} == {"encode_and_decode(halve, same)"}
