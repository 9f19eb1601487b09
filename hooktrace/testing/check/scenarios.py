"""What is tried: a table of scenarios, each run by every rank, in processes of its own.

A scenario is some phases of gradients (``gradients.py``), or a function that makes steps of its
own.  Those of odd values train ordinary steps first, so that a hook that starts plainly (PowerSGD's
first steps) compresses; then the odd ones; then ordinary ones again, since what a state keeps of an
odd step shows only then.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ...records.errors import UsageError
from ...tracing.hookless import listed_hooks
from .calls import DdpCall, sharded_run
from .gradients import CHOSEN, MANY, ODD, Phases, Shapes, Who
from .rank import Context
from .spec import HookSpec, is_sharded


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to try.

    ``key``: its name, on the command line too.  ``phases``: its gradients, of one rank at a time
    and of all alike if it is ``by_rank``.  ``shapes``: of a model's parameters; ``parts``: of
    FSDP's units, none if it is for DDP's hooks alone.  ``longest_s``: see ``DdpCall``.
    ``measures``: it shows how much is lost.  ``run``: what every rank does instead of all that.
    """

    key: str
    phases: Phases = (("ordinary", 6),)
    by_rank: bool = False
    shapes: Shapes = MANY
    parts: tuple[int, ...] = (2048,)
    dtype: torch.dtype = torch.float32
    longest_s: float = 0.0
    measures: bool = False
    run: Callable[[Context], None] | None = None

    def __call__(self, context: Context) -> None:
        """Try it as one rank."""
        if self.run is not None:
            self.run(context)
            return
        # The first rank alone, the last one alone, and all with the same gradients.
        asked: tuple[Who, ...] = (0, context.size - 1, "alike") if self.by_rank else ("each",)
        is_unit = is_sharded(context.hook.hook)
        if is_unit:
            divisors = (float(context.size), 1.0, 2.5)  # an average, a sum, and a set factor
            runs = [
                sharded_run(context, part, divisor, who, self.dtype)
                for part in self.parts
                for who, divisor in zip(asked, divisors, strict=False)
            ]
        else:
            options = self.shapes, self.dtype, self.longest_s
            runs = [DdpCall(context, *options).run(who) for who in asked]
        for run in runs:
            run.play(*self.phases)
            run.wire = runs[0].wire if is_unit else run.wire  # it is large enough to tell
        context.judge(runs)
        is_right = context.result.status != "fail"
        if self.measures and is_right:
            context.result.note = runs[0].summary()
        context.result.loses = self.by_rank and is_right and not all(run.is_fine for run in runs)


def _pickling(context: Context) -> None:
    """Pickle the trained model, with the hook and its state, and train the copy."""
    call = DdpCall(context)
    run = call.run()
    run.play(("ordinary", 3))
    try:
        call.ddp = pickle.loads(pickle.dumps(call.ddp))
    except Exception as error:
        context.find("not_picklable", f"the model does not pickle with it ({error!r})")
        return
    # Torch pickled the hooks with it, and registers none of them.
    listed_hooks(call.ddp).clear()
    call.register()
    run.play(("ordinary", 3))
    context.judge([run])


_BEFORE = ("ordinary", 8)
_HALVES = (2048, 513, 1)
_ODD_PARTS = (2048, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""

SCENARIOS = (
    Scenario("arithmetic", CHOSEN, by_rank=True, measures=True),
    Scenario("many-buckets", (("ordinary", 32),), parts=(), longest_s=0.002, measures=True),
    Scenario("odd-sizes", shapes=ODD, parts=_ODD_PARTS),
    Scenario("float16", dtype=torch.float16, parts=_HALVES),
    Scenario("bfloat16", dtype=torch.bfloat16, parts=_HALVES),
    Scenario("zeros", (("zeros", 12), _BEFORE, ("zeros", 3), ("after", 4))),
    Scenario("large", (_BEFORE, ("large", 4))),
    Scenario("huge", (_BEFORE, ("huge", 2), ("later", 4))),
    Scenario("nan", (_BEFORE, ("nan", 1), ("after", 4))),
    Scenario("pickling", parts=(), run=_pickling),
)


def chosen(keys: Sequence[str], hook: HookSpec) -> list[Scenario]:
    """Return a loaded hook's scenarios of these keys, or all.

    Raises ``UsageError`` for a key of no scenario for this kind of hook.
    """
    cases = [case for case in SCENARIOS if case.parts or not is_sharded(hook.hook)]
    names = [case.key for case in cases]
    for key in keys:
        if key not in names:
            raise UsageError(f"no case is called {key!r}; the cases are {', '.join(names)}")
    return [case for case in cases if case.key in (keys or names)]
