"""What is tried: a table of scenarios, each run by every rank, in processes of its own.

A scenario is some phases of gradients (``gradients.py``), and the oracles that are asked of what
comes (``oracles.py``); or a function that makes steps of its own.

Those of odd values train ordinary steps first, so that a hook that starts plainly (PowerSGD's first
steps) compresses; then the odd ones; then ordinary ones again, since what a state keeps of an odd
step shows only then.
"""

from __future__ import annotations

import math
import pickle
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import ScatterHook
from ...records.errors import UsageError
from ...tracing.hookless import listed_hooks
from .calls import DdpCall, FsdpCall, KnownGradients, play
from .gradients import CHOSEN, LONG, MANY, ODD, Phases, Shapes, lengths_of_shapes
from .oracles import CHOSEN_ASKED, FINITE, OF_LARGE, ORDINARY, USUAL, Oracle
from .rank import Context
from .result import Measured
from .runs import Run, Who, distance
from .spec import HookSpec, is_sharded

_ODD_PARTS = (2048, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""


def each(ranks: int) -> tuple[Who, ...]:
    """Ask once, with gradients of all ranks."""
    return ("each",)


def asked_of(ranks: int) -> tuple[Who, ...]:
    """Ask the first rank alone, the last one alone, and all with the same gradients."""
    return 0, ranks - 1, "alike"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to try.

    ``key``: its name, on the command line too.  ``phases``, ``who``: its gradients.  ``shapes``: of
    a model's parameters; ``parts``: of FSDP's units, none if it is for DDP's hooks alone.
    ``options``: of ``DdpCall``.  ``measures``: it shows how much is lost.  ``run``: what every rank
    does instead of all that.
    """

    key: str
    phases: Phases = (("ordinary", 6),)
    oracles: Sequence[Oracle] = ORDINARY
    who: Callable[[int], tuple[Who, ...]] = each
    shapes: Shapes = MANY
    parts: tuple[int, ...] = (2048,)
    dtype: torch.dtype = torch.float32
    options: Mapping[str, Any] = field(default_factory=dict)
    measures: bool = False
    run: Callable[[Context], None] | None = None

    def __call__(self, context: Context) -> None:
        """Try it as one rank."""
        if self.run is not None:
            self.run(context)
            return
        runs: list[Run] = []
        for run, call in (_units if is_sharded(context.hook.hook) else _models)(context, self):
            play(run, call, self.phases)
            # Of units, the first one is large enough to tell the format by.
            is_told = runs and isinstance(call, FsdpCall)
            run.wire = runs[0].wire if is_told else call.wire(run.active[0].number)
            runs.append(run)
        if self.measures:
            context.result.measured = measured(runs[0])
        context.judge(runs, self.oracles)


def measured(run: Run) -> Measured:
    """Return how much is lost, of a step and of the sum of all, and how much less is sent."""
    steps = [step for step in run.active if step.is_finite]
    if not steps:
        return Measured()
    result = torch.stack([step.result for step in steps]).sum(0)
    average = torch.stack([step.average for step in steps]).sum(0)
    bits = run.wire.bits
    return Measured(
        error=statistics.median(distance(step.result, step.average) for step in steps),
        sum_error=distance(result, average),
        ratio=None if bits is None else 32 / bits if bits else math.inf,
    )


def _models(context: Context, scenario: Scenario) -> Iterator[tuple[Run, DdpCall]]:
    """Yield each run of a hook of DDP's, with the call that makes its steps."""
    lengths, dtype = lengths_of_shapes(scenario.shapes), scenario.dtype
    for who in scenario.who(context.size):
        run = Run(who, lengths, context.size, float(context.size), dtype)
        yield run, DdpCall(context, scenario.shapes, dtype, **scenario.options)


def _units(context: Context, scenario: Scenario) -> Iterator[tuple[Run, FsdpCall]]:
    """Yield each run of a hook for FSDP's collectives, with the call that makes its steps."""
    size, asked = context.size, scenario.who(context.size)
    is_scatter = isinstance(context.hook.hook, ScatterHook)
    # Of an average, a sum, and a set factor.
    divisors = (float(size), 1.0, 2.5) if is_scatter else (1.0, 1.0, 1.0)
    wrong = "wrong_gradients" if is_scatter else "wrong_parameters"
    for part in scenario.parts:
        tried = [(who, divisor, False) for who, divisor in zip(asked, divisors, strict=False)]
        if is_scatter and len(asked) > 1:
            tried.append((asked[-1], float(size), True))
        for who, divisor, beside in tried:
            more = f", parts of {part}{', beside a larger unit' * beside}"
            lengths = (part,) if is_scatter else (part,) * size
            run = Run(who, lengths, size, divisor, scenario.dtype, more, wrong)
            yield run, FsdpCall(context, part, divisor, run.name, beside=beside)


def _registration(context: Context) -> None:
    """Ask DDP itself, without ``trace``, and then with it."""
    ddp = DistributedDataParallel(KnownGradients(MANY, torch.float32))
    refusal: Exception | None = None
    try:
        ddp.register_comm_hook(context.new_state(), context.hook.hook)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        refusal = error
    try:
        DdpCall(context, MANY)
    except (TypeError, ValueError) as error:
        context.find("registration", f"{error}", remedy="")
        return
    if refusal is not None:
        reason = f"{type(refusal).__name__}: {refusal}"
        context.find("needs_trace", f"DDP refuses the hook as it is ({reason})")


def _begin(context: Context, steps: int) -> tuple[Run, DdpCall]:
    """Return a run of some ordinary steps, and what makes more of them."""
    run = Run("each", lengths_of_shapes(MANY), context.size, float(context.size))
    call = DdpCall(context, MANY)
    return play(run, call, (("ordinary", steps),)), call


def _join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    run, call = _begin(context, 6)
    run.wire = call.wire()
    with call.ddp.join():
        play(run, call, (("ordinary", 3),))
        alone = replace(run, steps=list(run.steps))
        if context.rank == context.size - 1:
            play(alone, call, (("joined", 3),))
    context.judge([run], ORDINARY)
    context.judge([alone], ORDINARY, of_this_rank=True)


def _pickling(context: Context) -> None:
    """Pickle the hook, its state, and the trained model; train the model's copy."""
    run, call = _begin(context, 3)
    copied: Any = None
    for what, value, remedy in (
        ("hook", context.hook.hook, "define it at the top of a module"),
        ("state", context.new_state(), "leave out what belongs to a process"),
        ("model", call.ddp, "look at what the hook's state holds"),
    ):
        try:
            copied = pickle.loads(pickle.dumps(value))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            both = "does not pickle; nor does a model that the hook is registered on"
            context.find("not_picklable", f"the {what} {both} ({reason})", remedy=remedy)
            return
    # The last copy is the model's; torch pickled the hooks with it, and registers none of them.
    listed_hooks(copied).clear()
    call.ddp = copied
    call.register(copied)
    play(run, call, (("ordinary", 3),))
    run.wire = call.wire()
    context.judge([run], ORDINARY)


_BEFORE = ("ordinary", 8)
_AFTER = ("after", 4)
_LATE = {"longest_s": 0.002}
_UNUSED = {"find_unused_parameters": True}
_HALVES = (2048, 513, 1)

SCENARIOS = (
    Scenario("registration", parts=(), run=_registration),
    Scenario("arithmetic", CHOSEN, CHOSEN_ASKED, who=asked_of, measures=True),
    Scenario("many-buckets", LONG, USUAL, parts=(), options=_LATE, measures=True),
    Scenario("odd-sizes", shapes=ODD, parts=_ODD_PARTS),
    Scenario("float16", dtype=torch.float16, parts=_HALVES),
    Scenario("bfloat16", dtype=torch.bfloat16, parts=_HALVES),
    Scenario("zeros", (("zeros", 12), _BEFORE, ("zeros", 3), _AFTER)),
    Scenario("large", (_BEFORE, ("large", 4)), OF_LARGE),
    Scenario("huge", (_BEFORE, ("huge", 2), _AFTER), FINITE),
    Scenario("nan", (_BEFORE, ("nan", 1), _AFTER)),
    Scenario("no-sync", parts=(), options={"passes": 2}),
    Scenario("join", parts=(), run=_join),
    Scenario("unused", (("unused", 6),), parts=(), options=_UNUSED),
    Scenario("pickling", parts=(), run=_pickling),
)


def chosen(keys: Sequence[str], hook: HookSpec) -> list[Scenario]:
    """Return a loaded hook's scenarios of these keys, or all.

    Raises ``UsageError`` for a key of no scenario, and if no key is of this kind of hook.
    """
    known = {case.key: case for case in SCENARIOS if case.parts or not is_sharded(hook.hook)}
    found = [case for key, case in known.items() if key in (keys or known)]
    unknown = [key for key in keys if key not in {case.key for case in SCENARIOS}]
    if unknown or not found:
        key = [*unknown, *keys][0]
        raise UsageError(f"no case is called {key!r}; the cases are {', '.join(known)}")
    return found
