"""What is tried: a table of scenarios, each run by every rank, in processes of its own.

    Scenario --_calls_of--> runs and calls --play--> steps --Context.judge--> the first flaw

A scenario is some phases of gradients (``gradients.py``), and the oracles that are asked of what
comes (``oracles.py``); or a function of ``by_hand.py``.

Those of odd values train ordinary steps first, so that a hook that starts plainly (PowerSGD's first
steps) compresses; then the odd ones; then ordinary ones again, since what a state keeps of an odd
step shows only then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from ...fsdp.hooks import ScatterHook
from ...records.errors import UsageError
from . import by_hand
from .calls import DdpCall, FsdpCall
from .gradients import (
    CHOSEN,
    LONG,
    MANY,
    ODD,
    Phases,
    Shapes,
    asked_of,
    each,
    lengths_of_shapes,
    play,
)
from .oracles import CHOSEN_ASKED, FINITE, OF_LARGE, ORDINARY, USUAL, Oracle
from .rank import Context
from .result import Measured
from .runs import Run, Who, distance
from .spec import HookSpec

_ODD_PARTS = (2048, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""

Kind = Literal["ddp", "scatter", "gather"]
_DDP: tuple[Kind, ...] = ("ddp",)
_FSDP: tuple[Kind, ...] = ("scatter", "gather")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to try.

    ``key``: its name, on the command line too.  ``phases``, ``who``: its gradients.  ``of``: the
    hooks that it is for.  ``parts``: of FSDP's units; ``shapes``: of a model's parameters.
    ``options``: of ``DdpCall``.  ``measures``: the hooks whose loss it shows.  ``run``: what every
    rank does instead of all that.
    """

    key: str
    phases: Phases = (("ordinary", 6),)
    oracles: tuple[Oracle, ...] = ORDINARY
    of: tuple[Kind, ...] = (*_DDP, *_FSDP)
    who: Callable[[int], tuple[Who, ...]] = each
    shapes: Shapes = MANY
    parts: tuple[int, ...] = (2048,)
    dtype: torch.dtype = torch.float32
    options: Mapping[str, Any] = field(default_factory=dict)
    measures: tuple[Kind, ...] = ()
    run: Callable[[Context], None] | None = None

    def __call__(self, context: Context) -> None:
        """Try it as one rank."""
        if self.run is not None:
            self.run(context)
            return
        runs: list[Run] = []
        for run, call in _calls_of(context, self):
            play(run, call, self.phases)
            # Of units, the first one is large enough to tell the format by.
            is_told = context.loaded.is_sharded and runs
            run.wire = runs[0].wire if is_told else call.wire(run.active[0].number)
            runs.append(run)
        if kind_of(context.loaded) in self.measures:
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


def _calls_of(context: Context, scenario: Scenario) -> Iterator[tuple[Run, DdpCall | FsdpCall]]:
    """Yield each run of a scenario with the call that makes its steps."""
    size, hook, dtype = context.size, context.loaded.hook, scenario.dtype
    asked, is_scatter = scenario.who(size), isinstance(hook, ScatterHook)
    if not context.loaded.is_sharded:
        lengths = lengths_of_shapes(scenario.shapes)
        for who in asked:
            run = Run(who, lengths, size, float(size), dtype)
            yield run, DdpCall(context, scenario.shapes, dtype, **scenario.options)
        return
    # Of an average, a sum, and a set factor.
    divisors = (float(size), 1.0, 2.5) if is_scatter else (1.0, 1.0, 1.0)
    wrong = "wrong_gradients" if is_scatter else "wrong_parameters"
    for part in scenario.parts:
        lengths = (part,) if is_scatter else (part,) * size
        for who, divisor in zip(asked, divisors, strict=False):
            run = Run(who, lengths, size, divisor, dtype, f", parts of {part}", wrong)
            yield run, FsdpCall(context, part, divisor, unit=run.name)
        if is_scatter and len(asked) > 1:
            run = Run(asked[-1], lengths, size, float(size), dtype, ", beside a larger unit")
            yield run, FsdpCall(context, part, float(size), unit=run.name, beside=True)


_BEFORE = ("ordinary", 8)
_AFTER = ("after", 4)
_LATE = {"longest_s": 0.002}
_HALVES = (2048, 513, 1)

SCENARIOS = (
    Scenario("registration", of=_DDP, run=by_hand.registration),
    Scenario("arithmetic", CHOSEN, CHOSEN_ASKED, who=asked_of, measures=_FSDP),
    Scenario("many-buckets", LONG, USUAL, _DDP, options=_LATE, measures=_DDP),
    Scenario("odd-sizes", shapes=ODD, parts=_ODD_PARTS),
    Scenario("float16", dtype=torch.float16, parts=_HALVES),
    Scenario("bfloat16", dtype=torch.bfloat16, parts=_HALVES),
    Scenario("zeros", (("zeros", 12), _BEFORE, ("zeros", 3), _AFTER)),
    Scenario("large", (_BEFORE, ("large", 4)), OF_LARGE),
    Scenario("huge", (_BEFORE, ("huge", 2), _AFTER), FINITE),
    Scenario("nan", (_BEFORE, ("nan", 1), _AFTER)),
    Scenario("no-sync", of=_DDP, options={"passes": 2}),
    Scenario("join", of=_DDP, run=by_hand.join),
    Scenario("unused", (("unused", 6),), of=_DDP, options={"find_unused_parameters": True}),
    Scenario("pickling", of=_DDP, run=by_hand.pickling),
    Scenario("training", of=_FSDP, run=by_hand.in_training),
)


def kind_of(hook: HookSpec) -> Kind:
    """Return whether a loaded hook is DDP's, or in the place of one of FSDP's collectives."""
    if not hook.is_sharded:
        return "ddp"
    return "scatter" if isinstance(hook.hook, ScatterHook) else "gather"


def chosen(keys: Sequence[str], hook: HookSpec) -> list[Scenario]:
    """Return a loaded hook's scenarios of these keys, or all.

    Raises ``UsageError`` for a key of no scenario, and if no key is of this kind of hook.
    """
    known = {scenario.key: scenario for scenario in SCENARIOS if kind_of(hook) in scenario.of}
    found = [scenario for key, scenario in known.items() if key in (keys or known)]
    unknown = [key for key in keys if key not in {scenario.key for scenario in SCENARIOS}]
    if unknown or not found:
        key = [*unknown, *keys][0]
        raise UsageError(f"no case is called {key!r}; the cases are {', '.join(known)}")
    return found
