"""What the ranks do in ``test_powersgd.py``: PowerSGD beside torch's, and where torch's fails."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from hooktrace import hooks
from tests.distributed.comparison import (
    SHAPES,
    Given,
    Gradients,
    Run,
    difference,
    drawn,
    largest,
    renamed,
    require_buckets,
    tolerance,
)
from tests.distributed.harness import scenario
from tests.distributed.power_pairs import (
    FACTORS,
    PRODUCT,
    Case,
    Pair,
    compare,
    covering,
    ordered,
    teach,
    worst_of,
)


def power_each_step(rank: int) -> dict[str, dict[str, float]]:
    """Compare one step at a time: every pair of settings, on 4 ranks every one.

    Each step begins with torch's memory, so that 12 of them are 10 trials of a compressed step.
    """
    cases = covering(2 if dist.get_world_size() == 2 else 1)
    return {str(tuple(case)): compare(case, rank, steps=12, taught=True) for case in cases}


@scenario(deadline_s=240)
def power_30_steps(rank: int) -> dict[str, dict[str, float]]:
    """Compare the same settings over 30 steps, each side with its own memory.

    In float32: the rounding of 16-bit types comes back as a residual of its own size, and 30 steps
    later may have turned P, so that their comparison is the one step by step.  On 4 ranks only with
    warm start and error feedback, where errors would last.
    """
    cases = [Case(low) for low in FACTORS[0]]
    if dist.get_world_size() == 2:
        cases += dict.fromkeys(case._replace(dtype=torch.float32) for case in covering(2))
    return {str(tuple(case)): compare(case, rank, steps=30, taught=False) for case in cases}


@scenario(deadline_s=240)
def power_product(rank: int) -> dict[str, dict[str, float]]:
    """Compare the product of settings in two dtypes: a random start and one step from it."""
    facts = {}
    for dtype in (torch.float32, torch.bfloat16):
        cases = [case for case in PRODUCT if case.dtype is dtype]
        pair = Pair(cases[0], [dtype] * len(SHAPES))
        given = [drawn(rank, step, dtypes=pair.dtypes) for step in range(4)]
        for step in range(2):  # the model's buckets are rebuilt once, before all cases
            pair.step(given[step])
        for case in cases:
            pair.restart(case)
            worst = {}
            for step in range(2, 4):
                teach(pair.mine, pair.its)
                worst = worst_of(worst, pair.step(given[step]))
            facts[str(tuple(case))] = worst
    return facts


def power_modes(rank: int) -> dict[str, dict[str, float]]:
    """Compare in DDP's modes, through wrappers, with mixed dtypes, and on another group."""
    case, steps = Case(), 6
    wrapping = {
        torch.float16: (hooks.fp16_compress_wrapper, default_hooks.fp16_compress_wrapper),
        torch.bfloat16: (
            hooks.bf16_compress_wrapper,
            lambda hook: renamed(default_hooks.bf16_compress_wrapper(hook)),
        ),
    }
    alone = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]
    both = dist.new_group(list(range(dist.get_world_size())))
    found: dict[str, Any] = {
        "static_graph": {"static_graph": True},
        "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
        # A vector that no rank uses, and a matrix that only rank 0 does not use.
        "find_unused_parameters": {
            "find_unused_parameters": True,
            "unused": lambda step: (1, 2) if rank == 0 and step % 2 else (1,),
        },
        "mixed dtypes": {
            "dtypes": [(torch.float32, torch.bfloat16)[i // 2 % 2] for i in range(18)]
        },
        "static_graph, mixed dtypes": {
            "static_graph": True,
            "dtypes": [(torch.float32, torch.bfloat16)[i // 2 % 2] for i in range(18)],
        },
        "a group of all": {"group": both},
        "a group of one": {"group": alone},
    }
    facts = {
        name: compare(case, rank, steps=steps, taught=False, **given)
        for name, given in found.items()
    }
    for dtype, pair in wrapping.items():
        wrapped = case._replace(dtype=dtype)
        facts[f"wrapper {dtype}"] = compare(
            wrapped,
            rank,
            steps=steps,
            taught=False,
            dtypes=[torch.float32] * len(SHAPES),
            wrapped=pair,
        )
    return facts


def power_accumulated(rank: int) -> dict[str, float]:
    """Compare under no_sync, under join, and with two models in one backward pass."""
    facts = {}
    pair = Pair(Case(), [torch.float32] * len(SHAPES))
    allowed = tolerance(torch.float32, 8)
    for step in range(8):
        for run in (pair.ours, pair.theirs):
            run.ddp.zero_grad()
            for half in range(2):
                with run.ddp.no_sync() if half == 0 else nullcontext():
                    run.ddp(drawn(rank, 2 * step + half)).backward()
        found = difference(pair.ours.averaged(), pair.theirs.averaged()) / allowed
        facts["no_sync"] = max(facts.get("no_sync", 0.0), found)

    pair = Pair(Case(), [torch.float32] * len(SHAPES))
    results: list[list[Gradients]] = []
    for run in (pair.ours, pair.theirs):
        results.append([])
        with run.ddp.join():
            for step in range(4 + 2 * rank):  # each rank has two more steps than the one before
                results[-1].append(run.step(drawn(rank, step)))
    facts["join"] = max(map(difference, *results)) / allowed
    facts["join, residuals"] = (
        difference(ordered(pair.mine.error_dict), ordered(pair.its.error_dict)) / allowed
    )

    first, second = (Pair(Case(rank=r), [torch.float32] * len(SHAPES)) for r in (1, 4))
    for step in range(8):
        given = drawn(rank, step), drawn(rank, 100 + step)
        expected = first.theirs.step(given[0]), second.theirs.step(given[1])
        for run in (first.ours, second.ours):
            run.ddp.zero_grad()
        (first.ours.ddp(given[0]) + second.ours.ddp(given[1])).backward()
        for pair, theirs in zip((first, second), expected, strict=True):
            found = difference(pair.ours.averaged(), theirs) / allowed
            facts["two models"] = max(facts.get("two models", 0.0), found)
    return facts


SQUARES = ((24, 24),) * 6


def power_zeros(rank: int) -> dict[str, dict[str, float]]:
    """Send zero gradients for a while; return what of the gradients comes back afterwards.

    Gradients have just the rank of the approximation, which must give their mean exactly.
    ``zero``: the largest result where it must be 0.  ``fresh``: the relative error in the first
    steps after zeros.  ``rest``: the largest result long after the gradients became zero.
    """
    facts = {}
    for low, epsilon, which in itertools.product((1, 2, 4), (0, 1e-8), ("one", "all")):
        state = hooks.PowerSGDState(**Case(low, epsilon=epsilon, ratio=0.5).options())
        run = Run(hooks.powerSGD_hook, state, module=Given(SQUARES))
        found = {"zero": 0.0, "fresh": 0.0, "rest": 0.0}
        for step in range(12):
            left, right = drawn(0, step, ((24, low), (24, low)))
            matrix = left @ right.T
            is_zero = step in (2, 3, 7, 8, 9, 10)
            given = [
                matrix * (1 + rank) * (not is_zero or (which == "one" and i > 0)) for i in range(6)
            ]
            averaged = run.step(given)
            mean = matrix * (1 + dist.get_world_size()) / 2
            zeroed = averaged[:1] if which == "one" else averaged
            if not all(t.isfinite().all() for t in averaged):
                found["zero"] = float("inf")
            elif step in (2, 3):
                found["zero"] = max(found["zero"], largest(zeroed))
            elif step in (8, 9, 10):
                found["rest"] = max(found["rest"], largest(zeroed))
            elif not is_zero:
                found["fresh"] = max(found["fresh"], difference(zeroed, [mean] * len(zeroed)))
        require_buckets(run, least=3)
        facts[f"rank {low}, epsilon {epsilon}, {which}"] = found
    return facts
