"""Each standard hook by name; those that keep nothing beside torch's and formulas: to the bit."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, hooks, trace
from hooktrace.hooks import DDPCommHookType
from tests.distributed.comparison import SHAPES, Given, Gradients, Hook, Run, drawn, equal
from tests.distributed.harness import on
from tests.distributed.models import backward, gradients, make_ddp, make_steps

pytestmark = pytest.mark.slow

STEPS = 3
"""These hooks keep nothing from one step to the next."""


def default_pairs() -> dict[str, tuple[Hook, Hook]]:
    """Return hooktrace's hook and torch's, by name."""
    fp16, bf16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
    plain, half = default_hooks.allreduce_hook, default_hooks.fp16_compress_hook
    brain = default_hooks.bf16_compress_hook
    return {
        "allreduce": (hooks.allreduce_hook, plain),
        "fp16": (hooks.fp16_compress_hook, half),
        "bf16": (hooks.bf16_compress_hook, brain),
        "fp16(allreduce)": (hooks.fp16_compress_wrapper(hooks.allreduce_hook), fp16(plain)),
        "fp16(bf16)": (hooks.fp16_compress_wrapper(hooks.bf16_compress_hook), fp16(brain)),
        "bf16(torch's fp16)": (hooks.bf16_compress_wrapper(half), bf16(half)),
    }


@on(2, 4)
def test_default_hooks_and_wrappers_are_torch_s_to_the_bit(rank: int) -> None:
    """Steps of float32 and of bfloat16 parameters; wrappers around staged and torch's."""
    for name, (mine, its) in default_pairs().items():
        for dtype in (torch.float32, torch.bfloat16):
            dtypes = [dtype] * len(SHAPES)
            ours, theirs = (Run(hook, module=Given(dtypes=dtypes)) for hook in (mine, its))
            for step in range(STEPS):
                given = drawn(rank, step, dtypes=dtypes)
                assert equal(ours.step(given), theirs.step(given)), (name, dtype)
            assert min(ours.buckets, theirs.buckets) >= 6


# Divisible by 128 and 512, not divisible, shorter than a channel, and longer than a block of the
# hook's loops (2^16).
LENGTHS = ((1024,), (512,), (1000,), (50,), (1,), (640, 2), (130,), (70_000,))


def scale_and_zero_point(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's scale and zero point for 8 unsigned bits, of shape (rows, 1).

    The range is widened to hold zero, and the scale is at least float32's epsilon.
    """
    low = rows.amin(1, keepdim=True).clamp(max=0)
    high = rows.amax(1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).eps)
    return scale, (-torch.round(low / scale)).clamp(0, 255)


def quantised_mean(inputs: Sequence[torch.Tensor], chunk: int | None = None) -> torch.Tensor:
    """Return the mean of the ranks' gradients after 8-bit affine quantisation, in their dtype.

    ``chunk``: elements with a scale of their own, ``None`` for one scale for all.  Zeros fill the
    last chunk.  In float32: a value on the border between two steps would fall on the other side.
    """
    length, dtype = inputs[0].numel(), inputs[0].dtype
    chunk = chunk or length
    total = torch.zeros(math.ceil(length / chunk), chunk)
    for given in inputs:
        rows = torch.zeros(total.numel())
        rows[:length] = given.float()
        rows = rows.view_as(total)
        scale, zero = scale_and_zero_point(rows)
        steps = (torch.round(rows / scale) + zero).clamp(0, 255)
        total += scale * (steps - zero)
    return (total.flatten()[:length] / len(inputs)).to(dtype)


def gathered_mean(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum in rank order over the number of ranks, in the gradients' dtype."""
    return sum(inputs[1:], inputs[0]) / len(inputs)


CHANNELS = hooks.quantization_perchannel_hook
GATHERING: dict[str, tuple[Hook, Callable[[Sequence[torch.Tensor]], torch.Tensor]]] = {
    "quantised tensor": (hooks.quantization_pertensor_hook, quantised_mean),
    "quantised channels": (CHANNELS, lambda inputs: quantised_mean(inputs, 512)),
    "of 128": (CHANNELS.bind(bucket_size=128), lambda inputs: quantised_mean(inputs, 128)),
    "gathered": (hooks.allgather_then_aggregate_hook, gathered_mean),
}
"""Hooks that add up what they gathered, with their formulas."""


def varied(rank: int, step: int, dtypes: Sequence[torch.dtype] = ()) -> Gradients:
    """Return gradients of unlike ranges: of one sign, far from 0, tiny, all zero."""
    given = drawn(rank, step, LENGTHS, dtypes)
    given[1] = given[1].abs() + 3 + rank
    given[2] = -given[2].abs() * 100
    given[3] = given[3] * 1e-9
    given[6] = torch.zeros_like(given[6]) if step % 2 else given[6]
    return given


@on(2, 4)
def test_gathering_hooks_give_their_formulas_bits(rank: int) -> None:
    """A bucket a parameter after step 0; of all ranks, and in a group of one."""
    ranks = range(dist.get_world_size())
    alone = [dist.new_group([other]) for other in ranks][rank]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        dtypes = [dtype] * len(LENGTHS)
        for name, (hook, formula) in GATHERING.items():
            for group, members in ((None, ranks), (alone, [rank])):
                run = Run(hook, group, module=Given(LENGTHS, dtypes), bucket_cap_mb=1e-6)
                for step in range(STEPS):
                    given = varied(rank, step, dtypes)
                    torch.set_default_dtype(dtype)  # as scripts do; a payload is not of it
                    found = run.step(given)
                    torch.set_default_dtype(torch.float32)
                    inputs = zip(*(varied(r, step, dtypes) for r in members), strict=True)
                    expected = [
                        formula([one.flatten() for one in each]).view_as(each[0]) for each in inputs
                    ]
                    assert step == 0 or equal(found, expected), (name, dtype)
                assert run.buckets == len(LENGTHS)


@on(2)
def test_no_channel_more_than_there_must_be(rank: int) -> None:
    """A byte an element, and 5 for each channel of 128; torch adds a channel of padding."""
    with Tracer() as tracer:
        ddp = DistributedDataParallel(Given(LENGTHS), bucket_cap_mb=1e-6)
        ddp.register_comm_hook(None, trace(CHANNELS.bind(bucket_size=128), tracer=tracer))
        for step in range(3):
            ddp(varied(rank, step)).backward()
    sizes = sorted({(b.numel, b.wire_bytes or 0) for b in tracer.buckets() if b.rebuild})
    lengths = sorted(math.prod(shape) for shape in LENGTHS)
    assert sizes == [(numel, numel + 5 * math.ceil(numel / 128)) for numel in lengths]


@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("chunk", [None, 128, 512])
def test_the_formula_quantises_as_torch_does(shift: float, chunk: int | None) -> None:
    """It gives the bits of torch's observers and functions."""
    for length in (1, 50, 512, 1000):
        values = torch.randn(length, generator=torch.Generator().manual_seed(length)) + shift
        rows = values
        if chunk is not None:
            rows = torch.nn.functional.pad(values, (0, -length % chunk)).view(-1, chunk)
        observer: Any = MinMaxObserver() if chunk is None else PerChannelMinMaxObserver()
        observer(rows)
        kind, parameters = "tensor" if chunk is None else "channel", observer.calculate_qparams()
        steps = getattr(quantization_hooks, f"_quantize_per_{kind}_backend")(rows, *parameters)
        back = getattr(quantization_hooks, f"_dequantize_per_{kind}_backend")(steps, *parameters)
        assert torch.equal(quantised_mean([values], chunk), back.flatten()[:length])


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


@on(2)
def test_encode_and_decode_make_a_hook(rank: int) -> None:
    """A bfloat16 encoding errs by its rounding, of a gradient and of the sum; it pickles."""
    plain = make_ddp()
    plain.register_comm_hook(None, hooks.allreduce_hook)
    backward(plain, rank, 0)
    for average, factor in ((True, 1), (False, dist.get_world_size())):
        made = hooks.encode_and_decode(torch.Tensor.bfloat16, torch.Tensor.float, average=average)
        copy = pickle.loads(pickle.dumps(made))
        ours = make_ddp()
        ours.register_comm_hook(None, copy)
        backward(ours, rank, 0)
        expected = factor * gradients(plain)
        error = (gradients(ours) - expected).abs().max() / expected.abs().max()
        assert 0 < error <= 2 * 2**-8
        name = "encode_and_decode(TensorBase.bfloat16, TensorBase.float)"
        assert {made.__name__, copy.__name__} == {name}
