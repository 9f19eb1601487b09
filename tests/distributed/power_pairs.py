"""PowerSGD's settings, and hooktrace's PowerSGD beside torch's over some steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

from hooktrace import hooks
from tests.distributed.comparison import (
    SHAPES,
    Given,
    Gradients,
    Hook,
    Run,
    difference,
    drawn,
    largest,
    require_buckets,
    serialised,
    tolerance,
)

torch_power = serialised(power.powerSGD_hook)


class Case(NamedTuple):
    """One point of the product of PowerSGD's settings."""

    rank: int = 2
    warm: bool = True
    feedback: bool = True
    epsilon: float = 0
    batched: bool = False
    ratio: float = 2
    dtype: torch.dtype = torch.float32

    def options(self) -> dict[str, Any]:
        """Return the arguments of a state with these settings."""
        return {
            "process_group": None,
            "matrix_approximation_rank": self.rank,
            "start_powerSGD_iter": 2,
            "min_compression_rate": self.ratio,
            "use_error_feedback": self.feedback,
            "warm_start": self.warm,
            "orthogonalization_epsilon": self.epsilon,
            "random_seed": 11,
            "compression_stats_logging_frequency": 3,
            "batch_tensors_with_same_shape": self.batched,
        }


FACTORS: tuple[tuple[Any, ...], ...] = (
    (1, 2, 4),
    (False, True),
    (False, True),
    (0, 1e-8),
    (False, True),
    # At 0.5 rank 1 compresses even vectors; at 2, torch's default, rank 4 leaves the 16 x 16
    # matrices alone (they are just at the border) and rank 1 does not.
    (0.5, 2),
    (torch.float32, torch.float16, torch.bfloat16),
)
PRODUCT = [Case(*values) for values in itertools.product(*FACTORS)]


def covering(size: int) -> list[Case]:
    """Return a few cases that hold every combination of ``size`` settings."""
    places = list(itertools.combinations(range(len(FACTORS)), size))

    def held(case: Case) -> set[Any]:
        return {(place, tuple(case[i] for i in place)) for place in places}

    missing = set().union(*map(held, PRODUCT))
    chosen = []
    while missing:
        chosen.append(max(PRODUCT, key=lambda case: len(held(case) & missing)))
        missing -= held(chosen[-1])
    return chosen


def teach(ours: Any, theirs: Any) -> None:
    """Give our state torch's memory, so that the next step starts from the same bits."""
    ours.rng.set_state(theirs.rng.get_state())
    for name in ("error_dict", "p_memory_dict", "q_memory_dict"):
        memory = getattr(ours, name)
        memory.clear()
        memory.update({index: t.clone() for index, t in getattr(theirs, name).items()})


class Pair:
    """hooktrace's PowerSGD and torch's, side by side."""

    def __init__(
        self,
        case: Case,
        dtypes: Sequence[torch.dtype],
        *,
        wrapped: tuple[Hook, Hook] = (lambda hook: hook, lambda hook: hook),
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        self.case = case
        self.dtypes = dtypes
        settings = {**case.options(), "process_group": group}
        self.mine, self.its = hooks.PowerSGDState(**settings), power.PowerSGDState(**settings)
        mine, its = wrapped[0](hooks.powerSGD_hook), wrapped[1](torch_power)
        self.ours = Run(mine, self.mine, module=Given(dtypes=dtypes), **options)
        self.theirs = Run(its, self.its, module=Given(dtypes=dtypes), **options)

    def restart(self, case: Case) -> None:
        """Go on with other settings and no memory, and compress at once."""
        self.case = case
        for state, kind in ((self.mine, hooks.PowerSGDState), (self.its, power.PowerSGDState)):
            state.__setstate__(kind(**case.options()).__getstate__())
            state.iter = case.options()["start_powerSGD_iter"]

    def step(self, given: Sequence[torch.Tensor | None], allowed: float = 0) -> dict[str, float]:
        """Run both; return the difference of each quantity over what is allowed.

        The residual is measured by the largest gradient or residual, since where nothing is lost it
        is rounding only; all else by the largest number of its kind.
        """
        expected, found = self.theirs.step(given), self.ours.step(given)
        mine, its = self.mine, self.its
        errors = ordered(its.error_dict)
        differences = {
            "gradients": difference(found, expected),
            "residual": difference(ordered(mine.error_dict), errors, largest([*expected, *errors])),
            "p": difference(ordered(mine.p_memory_dict), ordered(its.p_memory_dict)),
            "q": difference(ordered(mine.q_memory_dict), ordered(its.q_memory_dict)),
            "counters": 0.0 if counters(mine) == counters(its) else float("inf"),
        }
        allowed = allowed or tolerance(self.case.dtype)
        return {name: value / allowed for name, value in differences.items()}


def worst_of(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """Return the larger difference of each quantity."""
    return {name: max(first.get(name, 0.0), second[name]) for name in second}


def compare(
    case: Case,
    rank: int,
    *,
    steps: int,
    taught: bool,
    dtypes: Sequence[torch.dtype] = (),
    unused: Callable[[int], Sequence[int]] = lambda step: (),
    **options: Any,
) -> dict[str, float]:
    """Train beside torch; return the largest difference of each quantity, over its tolerance.

    ``taught``: our state begins each step with torch's memory, so that each step is measured by
    itself.  ``unused``: the positions of parameters that a step does not use.
    """
    pair = Pair(case, dtypes or [case.dtype] * len(SHAPES), **options)
    worst: dict[str, float] = {}
    for step in range(steps):
        given: list[Any] = list(drawn(rank, step, dtypes=pair.dtypes))
        for position in unused(step):
            given[position] = None
        if taught:
            teach(pair.mine, pair.its)
        worst = worst_of(worst, pair.step(given, tolerance(case.dtype, 1 if taught else steps)))
    require_buckets(pair.ours, pair.theirs)
    return worst


def ordered(memory: dict[int, torch.Tensor]) -> Gradients:
    """Return what a state remembers, in the order of its buckets."""
    return [memory[index] for index in sorted(memory)]


def counters(state: Any) -> tuple[Any, ...]:
    """Return all of a state that must be equal, not just near."""
    seed = state.rng.get_state()
    return (
        *(state.iter, state.next_stats_report, state.compression_stats()),
        *(state.total_numel_before_compression, state.total_numel_after_compression),
        *map(sorted, (state.error_dict, state.p_memory_dict, state.q_memory_dict)),
        *(seed[1].tolist(), seed[2]),
    )
