"""PowerSGD against torch's, and the batched one against its formulas, on 2 and 4 gloo ranks.

PowerSGD's settings make a product of 288 cases.  Every pair of two settings is compared step by
step on 2 ranks, and what a step is told by the one before over some steps on 2 and on 4.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from tests.distributed import oracles
from tests.distributed.comparison import (
    SHAPES,
    Given,
    Gradients,
    Hook,
    Run,
    difference,
    drawn,
    equal,
    largest,
    renamed,
    require_buckets,
    serialised,
    tolerance,
)
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, make_model, train

pytestmark = [pytest.mark.slow, pytest.mark.long]

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


def agrees(found: dict[str, float], case: object) -> None:
    assert max(found.values()) <= 1, (case, found)


@on(2)
@scenario(deadline_s=240)
def test_each_step_agrees_with_torch(rank: int) -> None:
    """Gradients, residuals, P, Q, iteration, statistics and seeds, for every pair of settings.

    Each step begins with torch's memory, so that 8 of them are 6 trials of a compressed step.
    """
    for case in covering(2):
        agrees(compare(case, rank, steps=8, taught=True), case)


@on(2)
def test_every_mode_agrees_with_torch(rank: int) -> None:
    """DDP's modes, mixed dtypes, groups other than the default one, wrappers around it."""
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
        "static_graph, mixed dtypes": {
            "static_graph": True,
            "dtypes": [(torch.float32, torch.bfloat16)[i // 2 % 2] for i in range(18)],
        },
        "a group of all": {"group": both},
        "a group of one": {"group": alone},
    }
    for name, given in found.items():
        agrees(compare(case, rank, steps=steps, taught=False, **given), name)
    plain = [torch.float32] * len(SHAPES)
    for dtype, pair in wrapping.items():
        wrapped = {"dtypes": plain, "wrapped": pair}
        rounded = case._replace(dtype=dtype)
        agrees(compare(rounded, rank, steps=steps, taught=False, **wrapped), dtype)


@on(4)
def test_powersgd_agrees_with_torch_under_no_sync_and_join(rank: int) -> None:
    """Likewise accumulated gradients, uneven inputs, and two models with a state each."""
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
    assert set(facts) == {"no_sync", "join", "join, residuals", "two models"}
    assert max(facts.values()) <= 1, facts


SQUARES = ((24, 24),) * 6


@on(2)
def test_powersgd_survives_zero_gradients(rank: int) -> None:
    """Zeros give zeros, and what comes after them is not lost; torch gives NaN, or is dead."""
    for low, epsilon, which in itertools.product((1, 4), (0, 1e-8), ("one", "all")):
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
        # An exact low-rank gradient comes back but for rounding: 1000 eps is 1e-4.
        assert found["zero"] == 0, (low, epsilon, which)
        assert max(found.values()) <= 1e-4, (low, epsilon, which, found)


class Training:
    """A real model, its optimizer and its hook's state, which can be saved and loaded."""

    def __init__(
        self, hook: Hook, state: Any, saved: dict[str, Any] | None, **options: Any
    ) -> None:
        module = make_model(layers=6, seed=3 if saved else 0)
        self.state = saved["state"] if saved and state is None else state
        self.step = saved["step"] if saved else 0
        if saved:
            module.load_state_dict(saved["model"])
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=0.005, **options)
        self.ddp.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-4, momentum=0.9)
        if saved:
            self.optimizer.load_state_dict(saved["optimizer"])

    def until(self, step: int, rank: int) -> None:
        while self.step < step:
            self.optimizer.zero_grad()
            backward(self.ddp, rank, self.step)
            self.optimizer.step()
            self.step += 1

    def saved(self) -> dict[str, Any]:
        file = io.BytesIO()
        model, optimizer = self.ddp.module.state_dict(), self.optimizer.state_dict()
        kept = {"state": self.state, "step": self.step, "model": model, "optimizer": optimizer}
        kept["plain"] = self.state.state_dict()
        torch.save(kept, file)
        file.seek(0)
        loaded: dict[str, Any] = torch.load(file, weights_only=False)
        return loaded


@on(2)
def test_a_resumed_run_is_the_uninterrupted_one(rank: int) -> None:
    """Saved at step 10 and loaded, step 20 has the same weights and counters to the bit.

    Or it gets there, where it cannot be: DDP begins again with its first buckets, which are the old
    ones where it never rebuilds them.  A random Q and the batched hook's square depend on the
    buckets; what powerSGD_hook remembers for warm start does not.
    """
    modes: dict[str, dict[str, Any]] = {
        "rebuilt buckets": {},
        "find_unused_parameters": {"find_unused_parameters": True},
    }
    cases = {
        "powerSGD": (hooks.powerSGD_hook, Case()),
        "powerSGD, state_dict": (hooks.powerSGD_hook, Case()),
        "powerSGD, stacked": (hooks.powerSGD_hook, Case(4, batched=True, ratio=0.5)),
        "powerSGD, cold": (hooks.powerSGD_hook, Case(warm=False)),
        "batched, state_dict": (hooks.batched_powerSGD_hook, Case()),
    }
    for (mode, options), (name, (hook, case)) in itertools.product(modes.items(), cases.items()):
        whole = Training(hook, hooks.PowerSGDState(**case.options()), None, **options)
        whole.until(10, rank)
        saved = whole.saved()
        whole.until(20, rank)
        state = None
        if "state_dict" in name:
            state = hooks.PowerSGDState(**case.options())
            state.load_state_dict(saved["plain"])
        resumed = Training(hook, state, saved, **options)
        resumed.until(20, rank)
        assert resumed.state.iter == whole.state.iter
        assert all(p.isfinite().all() for p in resumed.ddp.parameters())
        if mode == "find_unused_parameters" or (hook is hooks.powerSGD_hook and case.warm):
            assert equal(list(resumed.ddp.parameters()), list(whole.ddp.parameters())), (name, mode)
            assert counters(resumed.state)[:2] == counters(whole.state)[:2]


def compare_batched(case: Case, rank: int) -> dict[str, float]:
    """Compare the batched hook with its formulas, each of 8 steps from the formulas' memory."""
    dtypes = [case.dtype] * len(SHAPES)
    state = hooks.PowerSGDState(**case.options())
    run = Run(hooks.batched_powerSGD_hook, state, module=Given(dtypes=dtypes))
    oracle = oracles.BatchedPowerSGD(
        rank=case.rank, feedback=case.feedback, warm=case.warm, seed=11
    )
    allowed = tolerance(case.dtype)
    worst: dict[str, float] = {}
    for step in range(8):
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


@on(2, 4)
def test_the_batched_hook_agrees_with_its_formulas(rank: int) -> None:
    """Step by step, with warm start and error feedback and without, in the 16-bit types too."""
    for warm, feedback in itertools.product((False, True), repeat=2):
        case = Case(2, warm, feedback)
        agrees(compare_batched(case, rank), case)
    for dtype in (torch.float16, torch.bfloat16):
        agrees(compare_batched(Case(dtype=dtype), rank), dtype)


@on(2)
def test_powersgd_takes_torchs_state(rank: int) -> None:
    """It counts on, and is saved with what the hook remembers."""
    runs = []
    for state in (hooks.PowerSGDState(None, 2, 2), power.PowerSGDState(None, 2, 2)):
        runs.append(train(hooks.powerSGD_hook, rank, steps=6, state=state))
    assert torch.equal(*runs)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    assert (state.iter, torch.load(buffer, weights_only=False).iter) == (6, 6)
