"""What is tried: a table of scenarios, each run by every rank, in processes of its own.

A scenario is some phases of gradients (``gradients.py``), and the oracles that are asked of what
comes (``oracles.py``); or a function that makes steps of its own.

Those of odd values train ordinary steps first, so that a hook that starts plainly (PowerSGD's first
steps) compresses; then the odd ones; then ordinary ones again, since what a state keeps of an odd
step shows only then.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import ScatterHook
from ...records.errors import UsageError
from ...tracing.hookless import listed_hooks
from .calls import DdpCall, FsdpCall, KnownGradients
from .gradients import CHOSEN, LONG, MANY, ODD, Phases, Shapes, Who, lengths_of_shapes
from .oracles import CHOSEN_ASKED, FINITE, OF_LARGE, ORDINARY, USUAL, Oracle
from .rank import Context
from .runs import Call, Run
from .spec import HookSpec, is_sharded


def asked_of(ranks: int) -> tuple[Who, ...]:
    """Ask the first rank alone, the last one alone, and all with the same gradients."""
    return 0, ranks - 1, "alike"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to try.

    ``key``: its name, on the command line too.  ``phases``: its gradients, of one rank at a time
    and of all alike if it is ``by_rank``.  ``shapes``: of a model's parameters; ``parts``: of
    FSDP's units, none if it is for DDP's hooks alone.  ``options``: of ``DdpCall``.  ``measures``:
    it shows how much is lost.  ``run``: what every rank does instead of all that.
    """

    key: str
    phases: Phases = (("ordinary", 6),)
    oracles: Sequence[Oracle] = ORDINARY
    by_rank: bool = False
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
        is_unit = is_sharded(context.hook.hook)
        for run, call in (_units if is_unit else _models)(context, self):
            run.play(call, self.phases)
            # Of units, the first one is large enough to tell the format by.
            first, tracer = run.active[0].number, getattr(call, "tracer", None)
            run.wire = runs[0].wire if runs and is_unit else run.wire_since(first, tracer)
            runs.append(run)
        if self.measures:
            context.result.measured = runs[0].measured()
        context.judge(runs, self.oracles)


def _models(context: Context, scenario: Scenario) -> Iterator[tuple[Run, Call]]:
    """Yield each run of a hook of DDP's, with the call that makes its steps."""
    shapes, dtype = scenario.shapes, scenario.dtype
    for who in asked_of(context.size) if scenario.by_rank else ("each",):
        yield (
            _run_of_model(context, who, shapes, dtype),
            DdpCall(context, shapes, dtype, **scenario.options),
        )


def _run_of_model(context: Context, who: Who, shapes: Shapes, dtype: torch.dtype) -> Run:
    size = context.size
    return Run(who, shapes, lengths_of_shapes(shapes), size, float(size), dtype)


def _units(context: Context, scenario: Scenario) -> Iterator[tuple[Run, Call]]:
    """Yield each run of a hook for FSDP's collectives, with the call that makes its steps."""
    size, average = context.size, float(context.size)
    asked: list[tuple[Who, float, bool]] = [("each", average, False)]
    if scenario.by_rank:
        # An average, a sum, and a set factor; then a unit beside a larger one.
        whose = (*asked_of(size), "alike")
        divisors = (average, 1.0, 2.5, average)
        asked = list(zip(whose, divisors, (False, False, False, True), strict=True))
    is_scatter = isinstance(context.hook.hook, ScatterHook)
    wrong = "wrong_gradients" if is_scatter else "wrong_parameters"
    for part in scenario.parts:
        one, all_of_them = (part,), (part,) * size
        for who, divisor, beside in asked:
            more = f", parts of {part}{', beside a larger unit' * beside}"
            if is_scatter:
                run = Run(who, (one,) * size, one, size, divisor, scenario.dtype, more, wrong)
            else:
                run = Run(who, (one,), all_of_them, size, 1.0, scenario.dtype, more, wrong)
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
        context.find("registration", f"{error}", fix="")
        return
    if refusal is not None:
        reason = f"{type(refusal).__name__}: {refusal}"
        context.find("needs_trace", f"DDP refuses the hook as it is ({reason})")


def _begin(context: Context, steps: int) -> tuple[Run, DdpCall]:
    """Return a run of some ordinary steps, and what makes more of them."""
    run, call = _run_of_model(context, "each", MANY, torch.float32), DdpCall(context, MANY)
    run.play(call, (("ordinary", steps),))
    return run, call


def _join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    run, call = _begin(context, 6)
    run.wire = run.wire_since(0, call.tracer)
    with call.ddp.join():
        run.play(call, (("ordinary", 3),))
        alone = replace(run, steps=list(run.steps))
        if context.rank == context.size - 1:
            alone.play(call, (("joined", 3),))
    context.judge([run], ORDINARY)
    context.judge([alone], ORDINARY, of_this_rank=True)


def _pickling(context: Context) -> None:
    """Pickle the hook, its state, and the trained model; train the model's copy."""
    run, call = _begin(context, 3)
    for what, value, fix in (
        ("hook", context.hook.hook, "define it at the top of a module"),
        ("state", context.new_state(), "leave out what belongs to a process"),
        ("model", call.ddp, "look at what the hook's state holds"),
    ):
        try:
            copied = pickle.loads(pickle.dumps(value))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            both = "does not pickle; nor does a model that the hook is registered on"
            context.find("not_picklable", f"the {what} {both} ({reason})", fix=fix)
            return
    # The last copy is the model's; torch pickled the hooks with it, and registers none of them.
    listed_hooks(copied).clear()
    call.ddp = copied
    call.register()
    run.play(call, (("ordinary", 3),))
    run.wire = run.wire_since(0, call.tracer)
    context.judge([run], ORDINARY)


_BEFORE = ("ordinary", 8)
_AFTER = ("after", 4)
_LATE = {"longest_s": 0.002}
_UNUSED = {"find_unused_parameters": True}
_HALVES = (2048, 513, 1)
_ODD_PARTS = (2048, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""

SCENARIOS = (
    Scenario("registration", parts=(), run=_registration),
    Scenario("arithmetic", CHOSEN, CHOSEN_ASKED, by_rank=True, measures=True),
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
