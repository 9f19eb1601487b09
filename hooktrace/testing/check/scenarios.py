"""What is tried: a table of scenarios, each run by every rank, in processes of its own.

    Scenario --calls_of--> runs and calls --play--> steps --Context.judge--> the first flaw

A scenario is some phases of gradients (``gradients.py``), and the oracles that are asked of what
comes (``oracles.py``); or a function of ``by_hand.py``.

Those of odd values train ordinary steps first, so that a hook that starts plainly (PowerSGD's first
steps) compresses; then the odd ones; then ordinary ones again, since what a state keeps of an odd
step shows only then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from ...fsdp.hooks import ScatterHook
from . import by_hand
from .calls import DdpCall, FsdpCall
from .gradients import CHOSEN, MANY, ODD, Phases, Shapes, asked_of, each, lengths_of_shapes, play
from .judge import Measured
from .oracles import FINITE, OF_LARGE, ORACLES, ORDINARY, Oracle
from .rank import Context
from .runs import Run, Who, distance
from .spec import HookSpec

_ODD_PARTS = (2048, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""

Kind = Literal["ddp", "scatter", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to try.

    ``key``: on the command line.  ``of``: the hooks that it is for.  ``run``: what every rank does,
    by default plays the ``phases`` with gradients of ``who``, and asks the ``oracles``.  ``parts``:
    of units, where ``shapes`` are of a model.  ``options``: of ``DdpCall``.
    """

    key: str
    name: str
    of: tuple[Kind, ...] = ("ddp", "scatter", "gather")
    phases: Phases = (("ordinary", 6),)
    oracles: tuple[Oracle, ...] = ORDINARY
    who: Callable[[int], tuple[Who, ...]] = each
    shapes: Shapes = MANY
    parts: tuple[int, ...] = (2048,)
    dtype: torch.dtype = torch.float32
    options: Mapping[str, Any] = field(default_factory=dict)
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
            run.wire = runs[0].wire if context.loaded.is_sharded and runs else call.wire()
            runs.append(run)
        if context.loaded.is_sharded:
            errors = [distance(step.result, step.average) for step in runs[0].active]
            bits = runs[0].wire.bits
            context.result.measured = Measured(
                error=statistics.median(errors), ratio=32 / bits if bits else math.inf
            )
            context.result.note = f"{bits:.3g} bits an element"
        context.judge(runs, self.oracles)


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


_DDP: tuple[Kind, ...] = ("ddp",)

SCENARIOS = (
    Scenario(key="registration", name="registration", of=_DDP, run=by_hand.registration),
    Scenario(
        key="arithmetic", name="chosen gradients", phases=CHOSEN, oracles=ORACLES, who=asked_of
    ),
    Scenario(key="many-buckets", name="many buckets, delays", of=_DDP, run=by_hand.many_buckets),
    Scenario(key="odd-sizes", name="odd sizes", shapes=ODD, parts=_ODD_PARTS),
    Scenario(key="float16", name="float16", dtype=torch.float16, parts=(2048, 513, 1)),
    Scenario(key="bfloat16", name="bfloat16", dtype=torch.bfloat16, parts=(2048, 513, 1)),
    Scenario(
        key="zeros",
        name="zero gradients",
        phases=(("zeros", 12), ("ordinary", 6), ("zeros", 3), ("after", 4)),
    ),
    Scenario(
        key="large",
        name="large gradients",
        phases=(("ordinary", 8), ("large", 4)),
        oracles=OF_LARGE,
    ),
    Scenario(
        key="huge",
        name="huge gradients",
        phases=(("ordinary", 8), ("huge", 2), ("after", 4)),
        oracles=FINITE,
    ),
    Scenario(key="nan", name="NaN on one rank", phases=(("ordinary", 8), ("nan", 1), ("after", 4))),
    Scenario(key="no-sync", name="no_sync", of=_DDP, options={"passes": 2}),
    Scenario(key="join", name="join", of=_DDP, run=by_hand.join),
    Scenario(
        key="unused",
        name="unused parameters",
        of=_DDP,
        phases=(("unused", 6),),
        options={"find_unused_parameters": True},
    ),
    Scenario(key="pickling", name="pickling", of=_DDP, run=by_hand.pickling),
    Scenario(
        key="training",
        name="training with fully_shard",
        of=("scatter", "gather"),
        run=by_hand.in_training,
    ),
)


def scenarios_of(hook: HookSpec) -> list[Scenario]:
    """Return the scenarios of a hook of DDP's, or for one of FSDP's collectives."""
    taken: Kind = "ddp"
    if hook.is_sharded:
        taken = "scatter" if isinstance(hook.hook, ScatterHook) else "gather"
    return [scenario for scenario in SCENARIOS if taken in scenario.of]
