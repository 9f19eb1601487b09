"""Hooks that keep nothing, and wrappers, beside torch's own and beside formulas: to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, hooks, trace
from tests.distributed import oracles
from tests.distributed.comparison import (
    SHAPES,
    Formula,
    Given,
    Gradients,
    Hook,
    Run,
    drawn,
    equal,
    renamed,
    require_buckets,
)
from tests.distributed.harness import on

pytestmark = pytest.mark.slow

STEPS = 4
"""These hooks keep nothing from one step to the next."""


# --- default hooks --------------------------------------------------------------------------------


def default_pairs() -> dict[str, tuple[Hook, Hook]]:
    """Return hooktrace's hook and torch's, by name."""
    fp16, bf16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
    plain, half = default_hooks.allreduce_hook, default_hooks.fp16_compress_hook
    brain = default_hooks.bf16_compress_hook
    return {
        "allreduce": (hooks.allreduce_hook, plain),
        "fp16": (hooks.fp16_compress_hook, half),
        "bf16": (hooks.bf16_compress_hook, renamed(brain)),
        "fp16(allreduce)": (hooks.fp16_compress_wrapper(hooks.allreduce_hook), fp16(plain)),
        "fp16(bf16)": (hooks.fp16_compress_wrapper(hooks.bf16_compress_hook), fp16(brain)),
        "fp16(torch's allreduce)": (hooks.fp16_compress_wrapper(plain), fp16(plain)),
        "bf16(torch's fp16)": (hooks.bf16_compress_wrapper(half), renamed(bf16(half))),
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
            require_buckets(ours, theirs)


# --- quantisation, gathering, nothing -------------------------------------------------------------

# Divisible by 128 and 512, not divisible, shorter than a channel, and longer than a block of the
# hook's loops (2^16).
LENGTHS = ((1024,), (512,), (1000,), (50,), (1,), (640, 2), (130,), (70_000,))


def _quantised(chunk: int | None) -> Formula:
    return lambda _, inputs: oracles.quantised_mean(inputs, chunk)


def gather_cases() -> dict[str, tuple[Hook, Formula]]:
    """Return hooks that add up what they gathered, with their formulas."""
    channels = hooks.quantization_perchannel_hook
    return {
        "quantised tensor": (hooks.quantization_pertensor_hook, _quantised(None)),
        "quantised channels": (channels, _quantised(512)),
        "quantised channels of 128": (channels.bind(bucket_size=128), _quantised(128)),
        "gathered": (
            hooks.allgather_then_aggregate_hook,
            lambda _, inputs: oracles.gathered_mean(inputs),
        ),
        "nothing": (hooks.noop_hook, lambda _, inputs: inputs[dist.get_rank()]),
    }


def _varied(rank: int, step: int, dtypes: Sequence[torch.dtype]) -> Gradients:
    """Return gradients of unlike ranges: of one sign, far from 0, tiny, all zero."""
    given = drawn(rank, step, LENGTHS, dtypes)
    given[1] = given[1].abs() + 3 + rank
    given[2] = -given[2].abs() * 100
    given[3] = given[3] * 1e-9
    given[6] = torch.zeros_like(given[6]) if step % 2 else given[6]
    return given


@on(2, 4)
def test_gathering_hooks_give_their_formulas_bits(rank: int) -> None:
    """Quantised in one and in many channels, gathered, and not communicated at all."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        dtypes = [dtype] * len(LENGTHS)
        for name, (hook, formula) in gather_cases().items():
            run = Run(hook, module=Given(LENGTHS, dtypes), bucket_cap_mb=1e-6)
            for step in range(STEPS):
                found = run.step(_varied(rank, step, dtypes))
                assert equal(found, run.expected(formula)), (name, dtype)
            require_buckets(run, least=8)


@on(2)
def test_quantisation_gives_its_formulas_bits_in_every_mode(rank: int) -> None:
    """DDP's modes, mixed dtypes, accumulated gradients and uneven inputs."""
    mixed = [(torch.float32, torch.bfloat16)[i % 2] for i in range(len(SHAPES))]
    modes: dict[str, dict[str, Any]] = {
        "static_graph": {"static_graph": True},
        "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
        "find_unused_parameters": {"find_unused_parameters": True},
        "mixed dtypes": {"module": mixed},
    }
    cases = gather_cases()
    for name in ("quantised tensor", "quantised channels of 128"):
        hook, formula = cases[name]
        for mode, options in modes.items():
            dtypes = options.get("module", [torch.float32] * len(SHAPES))
            run = Run(hook, **{**options, "module": Given(dtypes=dtypes)})
            for step in range(4):
                given: list[Any] = list(drawn(rank, step, dtypes=dtypes))
                if "unused" in mode:
                    given[1] = given[2 + rank] = None
                assert equal(run.step(given), run.expected(formula)), (name, mode)

        run = Run(hook)
        for step in range(4):
            run.ddp.zero_grad()
            with run.ddp.no_sync():
                run.ddp(drawn(rank, 100 + step)).backward()
            run.ddp(drawn(rank, step)).backward()
            assert equal(run.averaged(), run.expected(formula)), name

        run = Run(hook)
        with run.ddp.join():
            for step in range(4 + rank):
                run.step(drawn(rank, step))
        for step in range(3 + dist.get_world_size()):
            assert run.results_are(formula, step), name


@on(2)
def test_gathering_in_a_group_of_one(rank: int) -> None:
    """One rank's mean is its own gradient, quantised and back."""
    alone = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]
    for name, (hook, formula) in gather_cases().items():
        run = Run(hook, alone, module=Given(LENGTHS), bucket_cap_mb=1e-6)
        own = formula if name == "nothing" else _of_rank(rank, formula)
        for step in range(3):
            assert equal(run.step(_varied(rank, step, ())), run.expected(own)), name


def _of_rank(rank: int, formula: Formula) -> Formula:
    return lambda index, inputs: formula(index, [inputs[rank]])


@on(2)
def test_no_channel_more_than_there_must_be(rank: int) -> None:
    """A byte an element, and 5 for each channel of 128; torch adds a channel of padding."""
    with Tracer() as tracer:
        hook = trace(hooks.quantization_perchannel_hook.bind(bucket_size=128), tracer=tracer)
        ddp = DistributedDataParallel(Given(LENGTHS), bucket_cap_mb=1e-6)
        ddp.register_comm_hook(None, hook)
        for step in range(3):
            ddp(_varied(rank, step, ())).backward()
    sizes = sorted({(b.numel, b.wire_bytes or 0) for b in tracer.buckets() if b.rebuild})
    assert [numel for numel, _ in sizes] == sorted(math.prod(shape) for shape in LENGTHS)
    for numel, sent in sizes:
        assert sent == numel + 5 * math.ceil(numel / 128)


def _parameters(observer: Any, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    observer(values)
    found: tuple[torch.Tensor, torch.Tensor] = observer.calculate_qparams()
    return found


@pytest.mark.parametrize("length", [1, 50, 512, 1000, 1024])
@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("chunk", [None, 128, 512])
def test_the_oracle_quantises_as_torch_does(length: int, shift: float, chunk: int | None) -> None:
    """The formulas in ``oracles.py`` give the bits of torch's observers and functions."""
    values = torch.randn(length, generator=torch.Generator().manual_seed(length)) + shift
    if chunk is None:
        scale, zero = _parameters(MinMaxObserver(), values)
        steps = quantization_hooks._quantize_per_tensor_backend(values, scale, zero)
        expected = quantization_hooks._dequantize_per_tensor_backend(steps, scale, zero)
    else:
        rows = torch.nn.functional.pad(values, (0, -length % chunk)).view(-1, chunk)
        scale, zero = _parameters(PerChannelMinMaxObserver(), rows)
        steps = quantization_hooks._quantize_per_channel_backend(rows, scale, zero)
        expected = quantization_hooks._dequantize_per_channel_backend(steps, scale, zero)
    assert torch.equal(oracles.quantised_mean([values], chunk), expected.flatten()[:length])
