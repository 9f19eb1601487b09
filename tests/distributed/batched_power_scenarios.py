"""What the ranks do in ``test_powersgd.py``: batched PowerSGD beside its formulas."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist

from hooktrace import hooks
from tests.distributed import oracles
from tests.distributed.comparison import (
    SHAPES,
    Given,
    Run,
    difference,
    drawn,
    largest,
    require_buckets,
    tolerance,
)
from tests.distributed.power_pairs import FACTORS, Case, ordered, worst_of


def compare_batched(case: Case, rank: int, *, steps: int, taught: bool) -> dict[str, float]:
    """Compare the batched hook with its formulas; as ``compare``."""
    dtypes = [case.dtype] * len(SHAPES)
    state = hooks.PowerSGDState(**case.options())
    run = Run(hooks.batched_powerSGD_hook, state, module=Given(dtypes=dtypes))
    oracle = oracles.BatchedPowerSGD(
        rank=case.rank, feedback=case.feedback, warm=case.warm, seed=11
    )
    allowed = tolerance(case.dtype, 1 if taught else steps)
    worst: dict[str, float] = {}
    for step in range(steps):
        if taught:
            for index, errors in oracle.errors.items():
                if case.feedback:
                    state.error_dict[index] = errors[rank].to(case.dtype)
                if case.warm:
                    state.q_memory_dict[index] = oracle.q[index].to(case.dtype)
        averaged = run.step(drawn(rank, step, dtypes=dtypes))
        formula = oracle.step if step >= 2 else lambda _, inputs: oracles.gathered_mean(inputs)
        expected = run.expected(formula)
        errors = [oracle.errors[i][rank] for i in sorted(oracle.errors)] if case.feedback else []
        counted = (state.total_numel_before_compression, state.total_numel_after_compression)
        now = {
            "gradients": difference(averaged, expected) / allowed,
            "residual": difference(ordered(state.error_dict), errors, largest([*expected, *errors]))
            / allowed,
            "counters": 0.0 if counted == (oracle.before, oracle.after) else float("inf"),
        }
        worst = worst_of(worst, now)
    require_buckets(run)
    return worst


def batched_agrees(rank: int) -> dict[str, dict[str, float]]:
    """Compare the batched hook with its formulas: on its own, and on 2 ranks step by step."""
    facts = {}
    for low in FACTORS[0]:
        case = Case(low)
        facts[f"{tuple(case)}, 30 steps"] = compare_batched(case, rank, steps=30, taught=False)
        for warm, feedback in itertools.product((False, True), repeat=2):
            if dist.get_world_size() == 2:
                case = Case(low, warm, feedback)
                found = compare_batched(case, rank, steps=12, taught=True)
                facts[f"{tuple(case)}, each step"] = found
    for dtype in (torch.float16, torch.bfloat16):
        case = Case(dtype=dtype)
        facts[f"{tuple(case)}, each step"] = compare_batched(case, rank, steps=6, taught=True)
    return facts
