"""What the ranks do in ``test_parity.py``: hooktrace's hooks beside torch's and beside formulas.

    gradients chosen by (rank, step) --> DDP model with hooktrace's hook --> .grad, state --+
                                     --> DDP model with torch's, a formula --> expected ----+
                                                                  differences / tolerance <-+

The model's gradients are given to it (``Given``), so both sides start from the same bits, every
rank can work out every other rank's gradients, and a run of 30 steps costs communication only.
"""

from __future__ import annotations

import gc
import hashlib
import io
import itertools
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel

from hooktrace import Tracer, hooks, trace
from hooktrace.driver import composed, steps_of
from tests.distributed import mutants, oracles
from tests.distributed.models import backward, make_model

Hook = Callable[..., Any]
Gradients = list[torch.Tensor]
Formula = Callable[[int, list[torch.Tensor]], torch.Tensor]

# Pairs of one shape that share a bucket, vectors, a convolution, a thin matrix, one that is large
# enough for matrix-vector products (128 x 128), and one that no rank compresses (2 x 2).
SHAPES: tuple[tuple[int, ...], ...] = (
    *((24, 24), (24,), (24, 24), (24, 24), (24,), (24, 24)),
    *((16, 16), (16,), (16, 16), (16, 16), (5,), (16, 16)),
    *((8, 4, 3, 3), (8,), (12, 40), (30, 3), (2, 2), (128, 128)),
)
CAP_BYTES = 2400
"""A bucket takes two of the 24 x 24 matrices in float32."""


class Given(nn.Module):
    """A model whose gradients are what it is called with."""

    def __init__(
        self, shapes: Sequence[tuple[int, ...]] = SHAPES, dtypes: Sequence[torch.dtype] = ()
    ) -> None:
        super().__init__()
        dtypes = dtypes or [torch.float32] * len(shapes)
        self.values = nn.ParameterList(
            nn.Parameter(torch.zeros(s, dtype=d)) for s, d in zip(shapes, dtypes, strict=True)
        )

    def forward(self, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return a loss with these gradients; ``None`` leaves a parameter unused."""
        pairs = zip(self.values, gradients, strict=True)
        return torch.stack([(v * g).sum().float() for v, g in pairs if g is not None]).sum()


def drawn(
    rank: int,
    step: int,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtypes: Sequence[torch.dtype] = (),
) -> Gradients:
    """Return the gradients of one rank and step: a part that all ranks and steps share, and noise.

    Full rank and well conditioned, so that rounding is not blown up by the orthogonalisation.
    """
    dtypes = dtypes or [torch.float32] * len(shapes)
    shared = torch.Generator().manual_seed(7)
    own = torch.Generator().manual_seed(1_000_003 * (rank + 1) + step)
    return [
        (torch.randn(s, generator=shared) + torch.randn(s, generator=own)).to(d)
        for s, d in zip(shapes, dtypes, strict=True)
    ]


@dataclass
class Call:
    """What a hook was given for one bucket, and what it gave back."""

    parameters: list[torch.Tensor]
    gradients: torch.Tensor
    result: torch.Tensor | None = None


class Run:
    """One DDP model with one hook; ``log`` has each step's calls by bucket index."""

    def __init__(
        self, hook: Hook, state: Any = None, *, module: nn.Module | None = None, **options: Any
    ) -> None:
        module = module or Given()
        itemsize = min(p.element_size() for p in module.parameters())
        options.setdefault("bucket_cap_mb", CAP_BYTES / 4 * itemsize / 2**20)
        self.state = state
        self.log: list[dict[int, Call]] = []
        self.ddp = DistributedDataParallel(module, **options)
        self.ddp.register_comm_hook(state, _recorded(hook, self.log))

    def step(self, gradients: Sequence[torch.Tensor | None]) -> Gradients:
        """Run one backward pass with these gradients; return what ends in ``.grad``."""
        self.ddp.zero_grad()
        self.ddp(gradients).backward()
        return self.averaged()

    def averaged(self) -> Gradients:
        """Return copies of the gradients, zeros where there is none."""
        return [
            torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.ddp.parameters()
        ]

    def expected(self, formula: Formula, step: int = -1) -> Gradients:
        """Return the gradients that ``formula`` gives for what all ranks' hooks were given.

        Collective.  ``formula``: of a bucket's index and its gradients on each rank.
        """
        means: dict[int, torch.Tensor] = {}
        for index, gathered in self._of_all_ranks(step).items():
            parameters = self.log[step][index].parameters
            parts = formula(index, gathered).split([p.numel() for p in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                means[id(parameter)] = part.view(parameter.shape)
        return [means[id(p)] for p in self.ddp.parameters()]

    def results_are(self, formula: Formula, step: int) -> bool:
        """Return whether the hook's results in a step are the formula's to the bit.  Collective."""
        calls = self.log[step]
        return all(
            equal([calls[index].result], [formula(index, gathered)])
            for index, gathered in self._of_all_ranks(step).items()
        )

    def _of_all_ranks(self, step: int) -> dict[int, list[torch.Tensor]]:
        """Return each bucket's gradients on each rank, by its index."""
        calls = sorted(self.log[step].items())
        sent = torch.cat([call.gradients.view(torch.uint8) for _, call in calls])
        rows = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, sent)
        parts = [row.split([call.gradients.nbytes for _, call in calls]) for row in rows]
        return {
            index: [part[i].clone().view(call.gradients.dtype) for part in parts]
            for i, (index, call) in enumerate(calls)
        }


def _recorded(hook: Hook, log: list[dict[int, Call]]) -> Hook:
    """Return the hook, keeping what it is given and what it returns."""

    def steps(state: Any, bucket: Any) -> Iterator[Any]:
        if bucket.index() == 0:
            log.append({})
        call = log[-1][bucket.index()] = Call(bucket.parameters(), bucket.buffer().clone())
        result = yield from steps_of(hook, state, bucket)
        call.result = result.clone()
        return result

    return _around(steps, hook)


def _around(steps: Any, hook: Hook) -> Hook:
    return composed(steps, hook, name="around", made_by=(_around, (steps, hook)))


def serialised(hook: Hook) -> Hook:
    """Return torch's multi-round hook in the form that works on gloo: one bucket at a time."""

    def waited(state, bucket):  # DDP refuses annotations that are strings
        value = hook(state, bucket).wait()
        future = torch.futures.Future()
        future.set_result(value)
        return future

    return waited


torch_power = serialised(power.powerSGD_hook)


def require_buckets(*runs: Run, least: int = 6) -> None:
    """Raise unless the last step had that many buckets."""
    counts = [len(run.log[-1]) for run in runs]
    if min(counts) < least:
        raise AssertionError(f"{counts} buckets, and the comparison wants {least}")


# --- differences ----------------------------------------------------------------------------------


def difference(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], scale: float | None = None
) -> float:
    """Return the largest difference over the largest number, or over ``scale``; inf for NaN."""
    if [t.numel() for t in ours] != [t.numel() for t in theirs]:
        return float("inf")
    if not theirs:
        return 0.0
    mine = torch.cat([t.flatten().double() for t in ours])
    other = torch.cat([t.flatten().double() for t in theirs])
    if not other.numel():
        return 0.0
    if not mine.isfinite().all():
        return float("inf")
    return (mine - other).abs().max().item() / (scale or largest(theirs) or 1.0)


def largest(tensors: Sequence[torch.Tensor]) -> float:
    """Return the largest magnitude."""
    return max((t.abs().max().item() for t in tensors if t.numel()), default=0.0)


def equal(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors and dtypes are the same to the bit."""
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def tolerance(dtype: torch.dtype, steps: int = 1) -> float:
    """Return the difference that rounding may make, relative to the largest number of its kind.

    One step: P and Q are sums of up to 128 products, whose rounding errors add up to sqrt(128) eps
    at random and 128 eps at worst; orthogonalisation magnifies them by P's condition, which is
    about 4 for these gradients.  float32: 32 eps; seen are 5.  16-bit products are summed in
    float32 and rounded once, and a few more times by Gram-Schmidt: 4 eps; seen is 1.

    Many steps, each side on its own: a step's error comes back in the next one's residual and Q, so
    that the errors add up.  Error feedback with warm start magnifies them, where it turns from one
    direction to another of nearly the same size: eightfold is allowed, twofold is seen.
    """
    each = 32 if dtype is torch.float32 else 4
    magnified = 1 if steps == 1 else 8
    return float(each * torch.finfo(dtype).eps * steps * magnified)


# --- default hooks --------------------------------------------------------------------------------


def _renamed(hook: Hook) -> Hook:
    """Return torch's hook under a name that DDP does not refuse on gloo."""

    def renamed(state, bucket):  # DDP refuses annotations that are strings
        return hook(state, bucket)

    return renamed


def default_pairs() -> dict[str, tuple[Hook, Hook]]:
    """Return hooktrace's hook and torch's, by name; made anew each time, as mutants need."""
    fp16, bf16 = default_hooks.fp16_compress_wrapper, default_hooks.bf16_compress_wrapper
    plain, half = default_hooks.allreduce_hook, default_hooks.fp16_compress_hook
    brain = default_hooks.bf16_compress_hook
    return {
        "allreduce": (hooks.allreduce_hook, plain),
        "fp16": (hooks.fp16_compress_hook, half),
        "bf16": (hooks.bf16_compress_hook, _renamed(brain)),
        "fp16(allreduce)": (hooks.fp16_compress_wrapper(hooks.allreduce_hook), fp16(plain)),
        "bf16(allreduce)": (
            hooks.bf16_compress_wrapper(hooks.allreduce_hook),
            _renamed(bf16(plain)),
        ),
        "fp16(bf16)": (hooks.fp16_compress_wrapper(hooks.bf16_compress_hook), fp16(brain)),
        "bf16(fp16)": (
            hooks.bf16_compress_wrapper(hooks.fp16_compress_hook),
            _renamed(bf16(half)),
        ),
        "fp16(torch's allreduce)": (hooks.fp16_compress_wrapper(plain), fp16(plain)),
        "bf16(torch's fp16)": (hooks.bf16_compress_wrapper(half), _renamed(bf16(half))),
    }


def default_hooks_agree(rank: int) -> dict[str, list[bool]]:
    """Return in which steps gradients are torch's to the bit, by hook and parameters' dtype."""
    facts = {}
    for name, (mine, its) in default_pairs().items():
        for dtype, steps in ((torch.float32, 30), (torch.bfloat16, 4)):
            dtypes = [dtype] * len(SHAPES)
            ours, theirs = (Run(hook, module=Given(dtypes=dtypes)) for hook in (mine, its))
            facts[f"{name} {dtype}"] = [
                equal(ours.step(given), theirs.step(given))
                for given in (drawn(rank, step, dtypes=dtypes) for step in range(steps))
            ]
            require_buckets(ours, theirs)
    return facts


# --- PowerSGD -------------------------------------------------------------------------------------


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
        errors = _ordered(its.error_dict)
        differences = {
            "gradients": difference(found, expected),
            "residual": difference(
                _ordered(mine.error_dict), errors, largest([*expected, *errors])
            ),
            "p": difference(_ordered(mine.p_memory_dict), _ordered(its.p_memory_dict)),
            "q": difference(_ordered(mine.q_memory_dict), _ordered(its.q_memory_dict)),
            "counters": 0.0 if _counters(mine) == _counters(its) else float("inf"),
        }
        allowed = allowed or tolerance(self.case.dtype)
        return {name: value / allowed for name, value in differences.items()}


def _worst(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
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
        worst = _worst(worst, pair.step(given, tolerance(case.dtype, 1 if taught else steps)))
    require_buckets(pair.ours, pair.theirs)
    return worst


def _ordered(memory: dict[int, torch.Tensor]) -> Gradients:
    return [memory[index] for index in sorted(memory)]


def _counters(state: Any) -> tuple[Any, ...]:
    seed = state.rng.get_state()
    return (
        *(state.iter, state.next_stats_report, state.compression_stats()),
        *(state.total_numel_before_compression, state.total_numel_after_compression),
        *map(sorted, (state.error_dict, state.p_memory_dict, state.q_memory_dict)),
        *(seed[1].tolist(), seed[2]),
    )


def power_each_step(rank: int) -> dict[str, dict[str, float]]:
    """Compare over 30 steps, one step at a time: every pair of settings, on 4 ranks every one."""
    cases = covering(2 if dist.get_world_size() == 2 else 1)
    return {str(tuple(case)): compare(case, rank, steps=30, taught=True) for case in cases}


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


def power_product(rank: int) -> dict[str, dict[str, float]]:
    """Compare the whole product of settings: a random start and one step from it."""
    facts = {}
    for dtype in FACTORS[-1]:
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
                worst = _worst(worst, pair.step(given[step]))
            facts[str(tuple(case))] = worst
    return facts


def power_modes(rank: int) -> dict[str, dict[str, float]]:
    """Compare in DDP's modes, through wrappers, with mixed dtypes, and on another group."""
    case, steps = Case(), 6
    wrapping = {
        torch.float16: (hooks.fp16_compress_wrapper, default_hooks.fp16_compress_wrapper),
        torch.bfloat16: (
            hooks.bf16_compress_wrapper,
            lambda hook: _renamed(default_hooks.bf16_compress_wrapper(hook)),
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
        difference(_ordered(pair.mine.error_dict), _ordered(pair.its.error_dict)) / allowed
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


def shared_state(rank: int) -> dict[str, str]:
    """Use one state for two models; return the error, by the second model's kind."""
    facts = {}
    for name, shapes in (("alike", SHAPES), ("different", SQUARES)):
        state = hooks.PowerSGDState(**Case().options())
        runs = [Run(hooks.powerSGD_hook, state)]
        try:
            runs.append(Run(hooks.powerSGD_hook, state, module=Given(shapes)))
            for step in range(4):
                runs[0].step(drawn(rank, step))
                runs[1].step(drawn(rank, step, shapes))
        except Exception as error:
            facts[name] = str(error).splitlines()[0]
        else:
            facts[name] = "no error"
    return facts


# --- resume ---------------------------------------------------------------------------------------


class Training:
    """A real model, its optimizer and its hook's state, which can be saved and loaded."""

    def __init__(
        self, hook: Hook, state: Any, saved: dict[str, Any] | None, **options: Any
    ) -> None:
        module = make_model(layers=6, seed=3 if saved else 0)
        self.state = saved["state"] if saved else state
        self.step = saved["step"] if saved else 0
        if saved:
            module.load_state_dict(saved["model"])
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=0.005, **options)
        self.ddp.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-4, momentum=0.9)
        if saved:
            self.optimizer.load_state_dict(saved["optimizer"])

    def until(self, step: int, rank: int) -> None:
        """Train up to this step."""
        while self.step < step:
            self.optimizer.zero_grad()
            backward(self.ddp, rank, self.step)
            self.optimizer.step()
            self.step += 1

    def saved(self) -> dict[str, Any]:
        """Return what was saved and loaded again."""
        file = io.BytesIO()
        model, optimizer = self.ddp.module.state_dict(), self.optimizer.state_dict()
        kept = {"state": self.state, "step": self.step, "model": model, "optimizer": optimizer}
        torch.save(kept, file)
        file.seek(0)
        loaded: dict[str, Any] = torch.load(file, weights_only=False)
        return loaded


def resume(rank: int) -> dict[str, bool | str]:
    """Stop in the middle and go on from a file; return whether weights and memory are the same.

    Only where they can be: DDP begins again with its first buckets, which are the old ones where it
    never rebuilds them.  A random Q and the batched hook's square depend on the buckets; what
    powerSGD_hook remembers for warm start does not.
    """
    facts: dict[str, bool | str] = {}
    modes: dict[str, dict[str, Any]] = {
        "rebuilt buckets": {},
        "static_graph": {"static_graph": True},
        "find_unused_parameters": {"find_unused_parameters": True},
    }
    cases = {
        "powerSGD": (hooks.powerSGD_hook, Case()),
        "powerSGD, stacked": (hooks.powerSGD_hook, Case(4, batched=True, ratio=0.5)),
        "powerSGD, cold": (hooks.powerSGD_hook, Case(warm=False)),
        "batched": (hooks.batched_powerSGD_hook, Case()),
    }
    for (mode, options), (name, (hook, case)) in itertools.product(modes.items(), cases.items()):
        whole = Training(hook, hooks.PowerSGDState(**case.options()), None, **options)
        whole.until(10, rank)
        saved = whole.saved()
        whole.until(20, rank)
        try:
            resumed = Training(hook, None, saved, **options)
            resumed.until(20, rank)
        except Exception as error:
            facts[f"{name}, {mode}"] = str(error).splitlines()[0]
            continue
        if mode == "find_unused_parameters" or (hook is hooks.powerSGD_hook and case.warm):
            facts[f"{name}, {mode}"] = (
                equal(list(resumed.ddp.parameters()), list(whole.ddp.parameters()))
                and _counters(resumed.state)[:2] == _counters(whole.state)[:2]
            )
        else:
            facts[f"{name}, {mode}"] = resumed.state.iter == whole.state.iter and all(
                p.isfinite().all() for p in resumed.ddp.parameters()
            )
    return facts


def residuals_after_resume(rank: int) -> dict[str, float]:
    """Return by how much error feedback loses or invents gradients when a run is resumed.

    What was delivered and what remains as residual must be what was given and what remained before,
    on the average of the ranks.  All parameters are in one bucket, which DDP rebuilds in another
    order: its length does not tell.
    """
    facts = {}
    for name in ("powerSGD_hook", "batched_powerSGD_hook"):
        hook = getattr(hooks, name)
        shapes = ((24, 24), (24,), (16, 16), (16,))
        options: dict[str, Any] = {"bucket_cap_mb": 25}
        before = Run(
            hook, hooks.PowerSGDState(**Case(ratio=0.5).options()), module=Given(shapes), **options
        )
        for step in range(8):
            before.step(drawn(rank, step, shapes))
        state = pickle.loads(pickle.dumps(before.state))
        balance = _residuals(before)
        after = Run(hook, state, module=Given(shapes), **options)
        for step in range(8, 12):
            given = drawn(rank, step, shapes)
            delivered = after.step(given)
            balance = [b + g - d for b, g, d in zip(balance, given, delivered, strict=True)]
        lost = [b - r for b, r in zip(balance, _residuals(after), strict=True)]
        for tensor in lost:
            dist.all_reduce(tensor)
        facts[name] = largest(lost) / tolerance(torch.float32, 4)
    return facts


def _residuals(run: Run) -> Gradients:
    """Return the residual of a model's only bucket, by parameter."""
    (call,) = run.log[-1].values()
    flat = run.state.error_dict[0][: call.gradients.numel()]
    parts = flat.split([p.numel() for p in call.parameters])
    found = {id(p): part.view(p.shape) for p, part in zip(call.parameters, parts, strict=True)}
    return [found[id(p)].clone() for p in run.ddp.parameters()]


# --- batched PowerSGD -----------------------------------------------------------------------------


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
            "residual": difference(
                _ordered(state.error_dict), errors, largest([*expected, *errors])
            )
            / allowed,
            "counters": 0.0 if counted == (oracle.before, oracle.after) else float("inf"),
        }
        worst = _worst(worst, now)
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
                found = compare_batched(case, rank, steps=30, taught=True)
                facts[f"{tuple(case)}, each step"] = found
    for dtype in (torch.float16, torch.bfloat16):
        case = Case(dtype=dtype)
        facts[f"{tuple(case)}, each step"] = compare_batched(case, rank, steps=6, taught=True)
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
    for dtype, steps in ((torch.float32, 30), (torch.float16, 4), (torch.bfloat16, 4)):
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


# --- tests of the tests ---------------------------------------------------------------------------


def _family(name: str, rank: int) -> float:
    """Return a comparison's difference over its tolerance; over eps where it must be exact.

    Of PowerSGD the smallest over the dtypes: each must notice.
    """
    if name == "power":
        dtypes = FACTORS[-1]
        return min(compare(Case(dtype=d), rank, steps=5, taught=True)["gradients"] for d in dtypes)
    if name == "batched":
        found = compare_batched(Case(), rank, steps=5, taught=True)
        return max(found["gradients"], found["residual"])
    eps = torch.finfo(torch.float32).eps
    worst = 0.0
    if name == "default":
        for ours, theirs in default_pairs().values():
            given = drawn(rank, 0)
            worst = max(worst, difference(Run(ours).step(given), Run(theirs).step(given)) / eps)
    else:
        for case, (hook, formula) in gather_cases().items():
            if case.startswith(name):
                run = Run(hook)
                averaged = run.step(drawn(rank, 0))
                worst = max(worst, difference(averaged, run.expected(formula)) / eps)
    return worst


def mutants_noticed(rank: int) -> dict[str, float]:
    """Return by how much each mutant is over the tolerance, and each comparison without one."""
    facts = {}
    for name in sorted({mutant.family for mutant in mutants.MUTANTS.values()}):
        facts[f"no mutant: {name}"] = _family(name, rank)
    for name, mutant in mutants.MUTANTS.items():
        with mutant.applied():
            facts[name] = _family(mutant.family, rank)
    return facts


# --- stress ---------------------------------------------------------------------------------------


def delayed(hook: Hook, rank: int) -> Hook:
    """Return the hook with naps before and after each collective, most short, up to 2 ms."""
    chance = random.Random(rank)

    def steps(state: Any, bucket: Any) -> Iterator[Any]:
        generator = steps_of(hook, state, bucket)
        value = None
        while True:
            time.sleep(chance.random() ** 4 * 0.002)
            try:
                operation = generator.send(value)
            except StopIteration as stop:
                return stop.value
            value = yield operation

    return _around(steps, hook)


def stress(rank: int, steps: int = 100) -> dict[str, tuple[bool, str]]:
    """Run every hook with random delays; return (all finite, digest of all gradients)."""
    power_options = Case(ratio=0.5).options()
    channels = hooks.quantization_perchannel_hook.bind(bucket_size=128)
    kinds: dict[str, tuple[Hook, bool]] = {
        "allreduce": (hooks.allreduce_hook, False),
        "fp16": (hooks.fp16_compress_hook, False),
        "bf16": (hooks.bf16_compress_hook, False),
        "powerSGD": (hooks.powerSGD_hook, True),
        "batched powerSGD": (hooks.batched_powerSGD_hook, True),
        "quantised tensor": (hooks.quantization_pertensor_hook, False),
        "quantised channels": (channels, False),
        "gathered": (hooks.allgather_then_aggregate_hook, False),
        "nothing": (hooks.noop_hook, False),
        "fp16(powerSGD)": (hooks.fp16_compress_wrapper(hooks.powerSGD_hook), True),
        "bf16(batched powerSGD)": (
            hooks.bf16_compress_wrapper(hooks.batched_powerSGD_hook),
            True,
        ),
        "bf16(quantised channels)": (hooks.bf16_compress_wrapper(channels), False),
        "fp16(gathered)": (
            hooks.fp16_compress_wrapper(hooks.allgather_then_aggregate_hook),
            False,
        ),
    }
    facts = {}
    shapes = ((12, 20), (20,)) * 8
    pool = [drawn(rank, step, shapes) for step in range(7)]
    for name, (hook, has_state) in kinds.items():
        state = hooks.PowerSGDState(**power_options) if has_state else None
        ddp = DistributedDataParallel(Given(shapes), bucket_cap_mb=900 / 2**20)
        ddp.register_comm_hook(state, delayed(hook, rank))
        finite, digest = True, hashlib.sha256()
        for step in range(steps):
            ddp.zero_grad()
            ddp(pool[step % len(pool)]).backward()
            flat = torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])
            finite = finite and bool(flat.isfinite().all())
            digest.update(flat.numpy().tobytes())
        facts[name] = (finite, digest.hexdigest())
        del ddp
        gc.collect()
    return facts
