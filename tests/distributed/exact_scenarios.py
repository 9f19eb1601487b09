"""What ranks do in ``test_default.py``, ``test_quantization.py``: torch's or a formula's bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
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

STEPS = 8
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
        "bf16(allreduce)": (
            hooks.bf16_compress_wrapper(hooks.allreduce_hook),
            renamed(bf16(plain)),
        ),
        "fp16(bf16)": (hooks.fp16_compress_wrapper(hooks.bf16_compress_hook), fp16(brain)),
        "bf16(fp16)": (
            hooks.bf16_compress_wrapper(hooks.fp16_compress_hook),
            renamed(bf16(half)),
        ),
        "fp16(torch's allreduce)": (hooks.fp16_compress_wrapper(plain), fp16(plain)),
        "bf16(torch's fp16)": (hooks.bf16_compress_wrapper(half), renamed(bf16(half))),
    }


def default_hooks_agree(rank: int) -> dict[str, list[bool]]:
    """Return in which steps gradients are torch's to the bit, by hook and parameters' dtype."""
    facts = {}
    for name, (mine, its) in default_pairs().items():
        for dtype, steps in ((torch.float32, STEPS), (torch.bfloat16, 4)):
            dtypes = [dtype] * len(SHAPES)
            ours, theirs = (Run(hook, module=Given(dtypes=dtypes)) for hook in (mine, its))
            facts[f"{name} {dtype}"] = [
                equal(ours.step(given), theirs.step(given))
                for given in (drawn(rank, step, dtypes=dtypes) for step in range(steps))
            ]
            require_buckets(ours, theirs)
    return facts


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


def gathering_agrees(rank: int) -> dict[str, list[bool]]:
    """Return in which steps each hook gives its formula's bits."""
    facts = {}
    for dtype, steps in ((torch.float32, STEPS), (torch.float16, 4), (torch.bfloat16, 4)):
        dtypes = [dtype] * len(LENGTHS)
        for name, (hook, formula) in gather_cases().items():
            run = Run(hook, module=Given(LENGTHS, dtypes), bucket_cap_mb=1e-6)
            facts[f"{name} {dtype}"] = [
                equal(run.step(_varied(rank, step, dtypes)), run.expected(formula))
                for step in range(steps)
            ]
            require_buckets(run, least=8)
    return facts


def gathering_modes(rank: int) -> dict[str, list[bool]]:
    """Return in which steps the quantised hooks give their formulas' bits, by DDP's mode."""
    facts = {}
    mixed = [(torch.float32, torch.bfloat16)[i % 2] for i in range(len(SHAPES))]
    modes: dict[str, dict[str, Any]] = {
        "static_graph": {"static_graph": True},
        "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
        "find_unused_parameters": {"find_unused_parameters": True},
        "mixed dtypes": {"module": mixed},
    }
    for name, (hook, formula) in list(gather_cases().items())[:3]:
        for mode, options in modes.items():
            dtypes = options.get("module", [torch.float32] * len(SHAPES))
            run = Run(hook, **{**options, "module": Given(dtypes=dtypes)})
            facts[f"{name}, {mode}"] = same = []
            for step in range(4):
                given: list[Any] = list(drawn(rank, step, dtypes=dtypes))
                if "unused" in mode:
                    given[1] = given[2 + rank] = None
                same.append(equal(run.step(given), run.expected(formula)))

        run = Run(hook)
        facts[f"{name}, no_sync"] = same = []
        for step in range(4):
            run.ddp.zero_grad()
            with run.ddp.no_sync():
                run.ddp(drawn(rank, 100 + step)).backward()
            run.ddp(drawn(rank, step)).backward()
            same.append(equal(run.averaged(), run.expected(formula)))

        run = Run(hook)
        with run.ddp.join():
            for step in range(4 + rank):
                run.step(drawn(rank, step))
        facts[f"{name}, join"] = [
            run.results_are(formula, step) for step in range(3 + dist.get_world_size())
        ]
    return facts


def gathering_alone(rank: int) -> dict[str, list[bool]]:
    """Return in which steps each hook gives its formula's bits in a group of one rank."""
    facts = {}
    alone = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]
    for name, (hook, formula) in gather_cases().items():
        run = Run(hook, alone, module=Given(LENGTHS), bucket_cap_mb=1e-6)
        own = formula if name == "nothing" else _of_rank(rank, formula)
        facts[name] = [
            equal(run.step(_varied(rank, step, ())), run.expected(own)) for step in range(3)
        ]
    return facts


def _of_rank(rank: int, formula: Formula) -> Formula:
    return lambda index, inputs: formula(index, [inputs[rank]])


def quantised_bytes(rank: int) -> list[tuple[int, int]]:
    """Return (elements, bytes on the wire) of buckets quantised in channels of 128."""
    with Tracer() as tracer:
        hook = trace(hooks.quantization_perchannel_hook.bind(bucket_size=128), tracer=tracer)
        ddp = DistributedDataParallel(Given(LENGTHS), bucket_cap_mb=1e-6)
        ddp.register_comm_hook(None, hook)
        for step in range(3):
            ddp(_varied(rank, step, ())).backward()
        return sorted({(b.numel, b.wire_bytes or 0) for b in tracer.buckets() if b.generation})
