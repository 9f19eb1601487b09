"""One parameter group, and what stands in the place of its collectives while it is traced.

ParameterGroup --TracedUnit--> TracedAllGather, TracedReduceScatter, ReplicaReduction --undo--> it
"""

from __future__ import annotations

from typing import NamedTuple

from ..capture.unit_waits import UnitWaits
from .comms import TracedAllGather, TracedReduceScatter
from .hooks import GatherHook, ScatterHook
from .replicas import ReplicaReduction
from .stamps import Stamps
from .torch_groups import ParameterGroup
from .torch_waits import unwatch, watched

PLAIN = "fully_shard"
"""What records call the hook of a model that has none: torch's own collectives."""


class Hooks(NamedTuple):
    """What takes the place of FSDP's own collectives; ``None``: nothing."""

    reduce_scatter: ScatterHook | None
    all_gather: GatherHook | None

    @property
    def name(self) -> str:
        """What records call them."""
        return ", ".join(hook.name for hook in self if hook is not None) or PLAIN


class TracedUnit:
    """A parameter group and what it communicates with while it is traced."""

    def __init__(
        self, group: ParameterGroup, stamps: Stamps, hooks: Hooks, waits: UnitWaits | None
    ) -> None:
        self._group = group
        self.name = group.unit.name
        self._reduction: ReplicaReduction | None = None
        over = None
        if group.replicas is not None or group.all_reduce_hook is not None:
            self._reduction = ReplicaReduction(
                group.all_reduce_hook, stamps, group.replicas, group.will_call
            )
            group.all_reduce_hook = self._reduction
            over = None if group.replicas is None else self._reduction.begins
        self._gather = TracedAllGather(group.all_gather, stamps, hooks.all_gather)
        self._scatter = TracedReduceScatter(
            group.reduce_scatter, stamps, over, hooks.reduce_scatter
        )
        group.all_gather, group.reduce_scatter = self._gather, self._scatter
        self._waits = watched(group, waits)

    @property
    def in_place(self) -> bool:
        """Whether all of it is still what the group communicates with."""
        return self._group.has(self._gather, self._scatter, self._reduction)

    @property
    def is_anothers(self) -> bool:
        """Whether the group was traced again, which takes it from here."""
        now = self._group.all_gather
        return now is not self._gather and isinstance(now, TracedAllGather)

    def reduce_by(self, hook: ScatterHook | None) -> None:
        """Have another hook reduce its gradients, ``None``: the collective that it has."""
        self._scatter.hook = hook

    def undo(self) -> None:
        """Give the group back what it had, but for what somebody else has set since."""
        group = self._group
        if self._waits is not None:
            self._waits.undo()
        if group.all_gather is self._gather:
            group.all_gather = self._gather.inner
        if group.reduce_scatter is self._scatter:
            group.reduce_scatter = self._scatter.inner
        if self._reduction is not None and group.all_reduce_hook is self._reduction:
            group.all_reduce_hook = self._reduction.theirs


def untrace(group: ParameterGroup) -> None:
    """Give a group back what it had before any tracing."""
    unwatch(group)
    if isinstance(group.all_gather, TracedAllGather):
        group.all_gather = group.all_gather.inner
    if isinstance(group.reduce_scatter, TracedReduceScatter):
        group.reduce_scatter = group.reduce_scatter.inner
    if isinstance(group.all_reduce_hook, ReplicaReduction):
        group.all_reduce_hook = group.all_reduce_hook.theirs
