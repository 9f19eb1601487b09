"""Every standard hook by name, on 2 real gloo ranks."""

from __future__ import annotations

import pickle

import pytest
import torch
import torch.distributed as dist

from hooktrace import Tracer, hooks
from hooktrace.hooks import DDPCommHookType
from tests.distributed.harness import on
from tests.distributed.models import backward, gradients, make_ddp, make_steps

pytestmark = pytest.mark.slow


def stages_of(member: DDPCommHookType) -> list[str]:
    rounds = 2 if "SGD" in member.name and member is not DDPCommHookType.POST_LOCAL_SGD else 1
    if member is DDPCommHookType.NOOP:
        return ["compress"]
    return ["compress", *["wire", "compress"] * (rounds - 1), "wire", "decompress"]


@on(2)
def test_each_hook_registers_by_its_type(rank: int) -> None:
    """It is that type's hook with its stages; traced or not, the gradients are the same."""
    for member in DDPCommHookType:
        runs = []
        with Tracer() as tracer:
            for traced in (False, True):
                ddp = make_ddp(0.001)
                state = member.value.make_state(None, **member.value.check_options)
                hooks.register_ddp_comm_hook(member, ddp, state, tracer if traced else None)
                make_steps(ddp, rank, range(5))
                runs.append(gradients(ddp))
            last = tracer.buckets()[-1]
        assert torch.equal(*runs), member
        assert runs[0].isfinite().all(), member
        found = [s.name for s in last.stages if s.name not in {"serialization_wait", "queue"}]
        assert found == stages_of(member), member
        called = make_ddp()
        member.value(model=called, state=dist.group.WORLD)
        backward(called, rank, 0)
        assert gradients(called).isfinite().all(), member
        ((hook, state),) = called._comm_hooks
        assert {hook.__qualname__, last.hook} == {member.value.hook_name}
        columns = (2 if "RANK2" in member.name else 1) if "POWER" in member.name else None
        assert getattr(state, "matrix_approximation_rank", None) == columns, member


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
