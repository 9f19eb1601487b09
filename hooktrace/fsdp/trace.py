"""``hooktrace.fsdp.trace``: a sharded model's collectives, recorded unit by unit.

trace(model) --> groups_of(model) --each--> Stamps --> TracedAllGather, TracedReduceScatter
             --> the model's forward hooks: what is evaluation is no step
"""

from __future__ import annotations

import logging
import weakref
from typing import Any, NamedTuple

from torch import nn

from ..capture.buckets import ModelState
from ..capture.units import ShardedModel
from ..ranks.job import current_rank
from ..tracing.settings import default_tracer
from ..tracing.tracer import Tracer
from .comms import ReplicaReduction, Stamps, TracedAllGather, TracedReduceScatter
from .hooks import GatherHook, ScatterHook
from .torch_groups import ParameterGroup, fsdp_module, groups_of

logger = logging.getLogger("hooktrace")

PLAIN = "fully_shard"
"""What records call the hook of a model that has none: torch's own collectives."""


def trace(
    model: nn.Module,
    *,
    tracer: Tracer | None = None,
    name: str | None = None,
    reduce_scatter: ScatterHook | None = None,
    all_gather: GatherHook | None = None,
) -> TracedModel:
    """Record the collectives of a model that ``fully_shard`` was called for, unit by unit.

    ``model``: the root module, after all calls of ``fully_shard`` and of FSDP's setters.
    ``tracer``: where the records go, the process's default tracer by default.  ``name``: the
    model's name in all records, ``model0``, ``model1``, ... by default.  ``reduce_scatter`` and
    ``all_gather``: hooks of ``hooktrace.fsdp.hooks`` that take the place of FSDP's collectives.

    Each all-gather, reduce-scatter and, of hybrid sharding, all-reduce is a ``BucketRecord`` whose
    ``unit`` says which it is.  Results are the same, bit for bit: the collectives are torch's, or
    those that were set before.  A model that is traced already is traced anew, not twice.

    Returns what takes the tracing away again.  Raises ``TypeError`` for a model that is not
    sharded by ``fully_shard``, ``RuntimeError`` for a version of torch without its hook points.
    """
    _refuse_others(model)
    groups = list(groups_of(model))
    if not groups:
        raise TypeError(
            "the model has no module that fully_shard was called for; call "
            "torch.distributed.fsdp.fully_shard on it first, or for DDP use hooktrace.instrument"
        )
    tracer = default_tracer() if tracer is None else tracer
    return TracedModel(model, groups, tracer, name=name, hooks=Hooks(reduce_scatter, all_gather))


def _refuse_others(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"cannot trace a {type(model).__name__}; pass the module that fully_shard was called "
            "for"
        )
    if fsdp_module() is None:
        raise RuntimeError(
            "this version of torch has no hook points for FSDP2 (set_custom_all_gather); use "
            "torch 2.13, or DDP with hooktrace.instrument"
        )
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise TypeError(
            "FSDP1 (FullyShardedDataParallel) shows its collectives to nobody: its communication "
            "hook sees the root's gradients only; shard the model with fully_shard to trace it"
        )


class Hooks(NamedTuple):
    """What takes the place of FSDP's own collectives; ``None``: nothing."""

    reduce_scatter: ScatterHook | None
    all_gather: GatherHook | None

    @property
    def name(self) -> str:
        """What records call them."""
        return ", ".join(hook.name for hook in self if hook is not None) or PLAIN


class TracedModel:
    """A sharded model whose collectives are recorded; made by ``trace``.

    ``name``: the model's, in all records.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: list[ParameterGroup],
        tracer: Tracer,
        *,
        name: str | None,
        hooks: Hooks,
    ) -> None:
        for group in groups:
            _untrace(group)
        self.name = tracer.models.name(name)
        state = ModelState(self.name, hooks.name, {}, current_rank(), tracer.first_step)
        self._steps = ShardedModel(state, tracer)
        tracer.models.register_layout(self._steps)
        self._groups = groups
        for group in groups:
            _trace(group, Stamps(self._steps, group.unit, tracer), hooks)
        watching = _Forward(self._steps)
        self._handles = [
            model.register_forward_pre_hook(watching.begins, prepend=True),
            model.register_forward_hook(watching.ended, always_call=True),
        ]
        if all(group.ranks == 1 and group.replicas is None for group in groups):
            logger.warning(
                "%s is sharded over one rank: FSDP communicates nothing, so nothing is recorded",
                self.name,
            )

    def remove(self) -> None:
        """Give the model back the collectives that it had before."""
        for handle in self._handles:
            handle.remove()
        for group in self._groups:
            _untrace(group)


def _trace(group: ParameterGroup, stamps: Stamps, hooks: Hooks) -> None:
    replicas = group.replicas
    over = None
    if replicas is not None:
        reduction = ReplicaReduction(group.all_reduce_hook, stamps, replicas)
        group.all_reduce_hook, over = reduction, reduction.begins
    group.all_gather = TracedAllGather(group.all_gather, stamps, hooks.all_gather)
    group.reduce_scatter = TracedReduceScatter(
        group.reduce_scatter, stamps, over, hooks.reduce_scatter
    )


def _untrace(group: ParameterGroup) -> None:
    if isinstance(group.all_gather, TracedAllGather):
        group.all_gather = group.all_gather.inner
    if isinstance(group.reduce_scatter, TracedReduceScatter):
        group.reduce_scatter = group.reduce_scatter.inner
    if isinstance(group.all_reduce_hook, ReplicaReduction):
        group.all_reduce_hook = group.all_reduce_hook.theirs


class _Forward:
    """Tells a model's steps when it is called; holds neither."""

    def __init__(self, steps: ShardedModel) -> None:
        self._steps = weakref.ref(steps)

    def begins(self, *_: Any) -> None:
        steps = self._steps()
        if steps is not None:
            steps.forward_begins()

    def ended(self, *_: Any) -> None:
        steps = self._steps()
        if steps is not None:
            steps.forward_ended()

    # As FSDP's own hooks: a compiled model runs them, and is not compiled into them.
    begins._torchdynamo_disable = True  # type: ignore[attr-defined]
    ended._torchdynamo_disable = True  # type: ignore[attr-defined]
