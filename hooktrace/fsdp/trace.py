"""``hooktrace.fsdp.trace``: a sharded model's collectives, recorded unit by unit.

trace(model) --> groups_of(model) --each--> TracedUnit
             --> forward hooks of its sharded modules: what is evaluation is no step

Backward passes that the script finalises by hand (torch 2.15) end a step there:

module.finalize_backward() --> reduces what is left, waits --> the model's step is over
module.finalize_backward(async_op=True) --> reduces --> handle.wait() --> the step is over
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from functools import cache, partial, wraps
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.hooks import RemovableHandle

from ..probes.agreement import key_of
from ..probes.plan import ProbePlan
from ..probes.step_sampler import StepSampler
from ..staging.backward import current_pass
from ..staging.job import current_rank
from ..staging.slots import ModelState
from ..staging.units import ShardedModel
from ..tracing.trace import sharding_of, unwrapped
from ..tracing.tracer import Tracer, default_tracer
from .comms import Hooks, TracedAllGather, TracedUnit, untrace
from .hooks import GatherHook, ScatterHook
from .probe import UnitProbe
from .torch_groups import (
    ParameterGroup,
    changed,
    groups_of,
    sharded_modules,
    states_of,
    waits_for_script,
)
from .torch_waits import Watch, can_watch, watched_ends

logger = logging.getLogger("hooktrace")

_steps_of = weakref.WeakKeyDictionary[nn.Module, weakref.ref[ShardedModel]]()
"""What the sharded modules of traced models tell when they are finalised by hand."""


def trace(
    model: nn.Module,
    *,
    tracer: Tracer | None = None,
    name: str | None = None,
    reduce_scatter: ScatterHook | None = None,
    all_gather: GatherHook | None = None,
) -> TracedModel:
    """Record the collectives of a model that ``fully_shard`` was called for, unit by unit.

    ``model``: the root module, after all calls of ``fully_shard`` and of FSDP's setters; also one
    that is compiled, or in Fabric's module.
    ``tracer``: where the records go, the process's default tracer by default.  ``name``: the
    model's name in all records, ``model0``, ``model1``, ... by default.  ``reduce_scatter`` and
    ``all_gather``: hooks of ``hooktrace.fsdp.hooks`` that take the place of FSDP's collectives.

    Each all-gather, reduce-scatter and, of hybrid sharding, all-reduce is a ``BucketRecord`` whose
    ``unit`` says which it is.  Results are the same, bit for bit: the collectives are torch's, or
    those that were set before.  A model is traced once: what was traced before ends as a whole,
    also where this is a part of it.

    Returns what takes the tracing away again.  Raises ``TypeError`` for a model that is not
    sharded by ``fully_shard``, ``RuntimeError`` for a version of torch that keeps parameter groups
    elsewhere.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"cannot trace a {type(model).__name__}; pass the module that fully_shard was called "
            "for"
        )
    if sharding_of(model) == "FSDP1":
        raise TypeError(
            "FSDP1 (FullyShardedDataParallel) shows its collectives to nobody: its communication "
            "hook sees the root's gradients only; shard the model with fully_shard to trace it"
        )
    groups = list(groups_of(unwrapped(model)))
    if not groups:
        raise TypeError(
            "the model has no module that fully_shard was called for; call "
            "torch.distributed.fsdp.fully_shard on it first, or for DDP use hooktrace.instrument"
        )
    tracer = default_tracer() if tracer is None else tracer
    return TracedModel(model, groups, tracer, name=name, hooks=Hooks(reduce_scatter, all_gather))


def is_traced(model: nn.Module) -> bool:
    """Return whether a unit of a model is traced.  Raises ``RuntimeError`` as ``trace`` does."""
    return any(isinstance(group.comms.all_gather, TracedAllGather) for group in groups_of(model))


class TracedModel:
    """A sharded model whose collectives are recorded; made by ``trace``.

    ``name``: the model's, in all records.
    """

    def __init__(
        self, model: nn.Module, groups: list[ParameterGroup], tracer: Tracer, *,
        name: str | None, hooks: Hooks,
    ) -> None:  # fmt: skip
        for group in groups:
            untrace(group)
        self.name = tracer.models.name(name)
        state = ModelState(self.name, hooks.name, current_rank(), tracer.first_step)
        waits = tracer.unit_waits if can_watch(groups, self.name) else None
        parts = sharded_modules(model)
        states = states_of(parts)
        by_hand = partial(waits_for_script, states)
        self._steps = ShardedModel(
            state, tracer, self._is_whole, waits=waits, waits_for_script=by_hand
        )
        self._units, self._ours = list[TracedUnit](), list[Any]()
        self._ends: Watch | None = None
        self._misses = False
        self._watching = _Forward(self._steps, model, *parts)
        _steps_of.update(dict.fromkeys(parts, weakref.ref(self._steps)))
        _hear_of_finalization()
        tracer.models.register_layout(self._steps)
        plan = None
        if tracer.error_every and any(hooks):
            known = hooks.name, [group.unit for group in groups]
            plan = ProbePlan(state, key_of("units", known), tracer)
            state.sampling = StepSampler([plan])
        try:
            for number, group in enumerate(groups):
                probe = None if plan is None else UnitProbe(plan, number, len(groups), group)
                unit = TracedUnit(
                    group, self._steps, tracer, hooks, waits=waits, probe=probe, end=self.remove
                )
                self._units.append(unit)
            self._ours = [(unit.group, unit.ours) for unit in self._units]
            self._ends = watched_ends(states, waits)
        except BaseException:
            self.remove()
            raise
        self._say_what_is_not_called(groups, hooks)

    def in_forward(self, model: nn.Module) -> None:
        """Take note that the model is being called now, where it is traced from inside of that."""
        self._watching.begins(model)

    @property
    def next_step(self) -> int:
        """The number of the step that begins next, in records."""
        return self._steps.state.step + 1

    def reduce_by(self, hook: ScatterHook | None) -> None:
        """Have another hook reduce gradients from now on, ``None``: FSDP's own reduce-scatter."""
        for unit in self._units:
            unit.scatter.hook = hook

    def remove(self) -> None:
        """Give the model back the collectives that it had before; the step under way ends here."""
        self._watching.leave()
        self._steps.leave()  # before: it looks whether all units are recorded
        if self._steps.state.sampling is not None:
            self._steps.state.sampling.leave()
        if self._ends is not None:
            self._ends.undo()
        for unit in self._units:
            unit.undo()
        self._units, self._ours = [], []

    def _is_whole(self) -> bool:
        """Return whether all units are recorded still; of the first one that is not it is said."""
        lost = changed(self._ours)
        if lost and not self._misses:
            logger.warning(
                "the collectives of %s in %s were set anew after hooktrace.fsdp.trace, so its "
                "steps are not complete from now on; set them before, or trace the model again",
                lost[0].unit.name,
                self.name,
            )
        self._misses = bool(lost)
        return not lost

    def _say_what_is_not_called(self, groups: list[ParameterGroup], hooks: Hooks) -> None:
        if any(group.ranks > 1 for group in groups):
            return
        what = ""
        if all(group.replicas is None for group in groups):
            what = "FSDP communicates nothing, so nothing is recorded"
        elif any(hooks):
            what = f"FSDP only reduces over the replicas, and {hooks.name} does not run"
        if what:
            logger.warning("%s is sharded over one rank: %s", self.name, what)


class _Forward:
    """Tells a model's steps when one of its modules is called; leaves when they are gone."""

    def __init__(self, steps: ShardedModel, *modules: nn.Module) -> None:
        self._steps = weakref.ref(steps)
        self._handles: list[RemovableHandle] = []
        for module in dict.fromkeys(modules):
            self._handles += (
                module.register_forward_pre_hook(self.begins, prepend=True),
                module.register_forward_hook(self.ended, always_call=True),
            )

    def leave(self) -> None:
        """Hear of none any more."""
        for handle in self._handles:
            handle.remove()

    def begins(self, module: nn.Module, _: Any = None) -> None:
        """Tell that a module is called, unless that is within another one's call, and forward."""
        steps = self._steps()
        if steps is None:
            self.leave()
            return
        called = steps.called
        if called is None or called == id(module) or current_pass() != -1:
            steps.forward_begins(id(module), training=module.training)

    def ended(self, module: nn.Module, _: Any, __: Any) -> None:
        """Tell that the call is over, however it ended."""
        steps = self._steps()
        if steps is not None and steps.called == id(module):
            steps.called = None

    # As FSDP's own hooks: a compiled model runs them, and is not compiled into them.
    begins._torchdynamo_disable = True  # type: ignore[attr-defined]
    ended._torchdynamo_disable = True  # type: ignore[attr-defined]


@cache
def _hear_of_finalization() -> None:
    """Have FSDP's modules tell; once a process."""
    kind: Any = FSDPModule
    finalize = getattr(kind, "finalize_backward", None)
    if finalize is None:
        return

    @wraps(finalize)
    def heard(self: Any, *, async_op: bool = False) -> Any:
        # Called of a root; what is traced may be a part of it.
        known = [_steps_of[module]() for module in self.modules() if module in _steps_of]
        traced = {steps for steps in known if steps is not None}
        for steps in traced:
            steps.is_finalizing = True
        try:
            handle = finalize(self, async_op=async_op)
        finally:
            for steps in traced:
                steps.is_finalizing = False
        for steps in traced:
            steps.finalized()
        if traced and handle is not None:
            handle.wait = _telling(handle, traced)
        return handle

    kind.finalize_backward = heard


def _telling(handle: Any, traced: Iterable[ShardedModel]) -> Any:
    wait = handle.wait

    @wraps(wait)
    def waited() -> None:
        wait()
        handle.__dict__.pop("wait", None)  # or the two would hold each other
        for steps in traced:
            steps.finalized()

    return waited
