"""One parameter group, and what stands in the place of its collectives while it is traced.

ParameterGroup --TracedUnit--> TracedAllGather, TracedReduceScatter, ReplicaReduction --undo--> it
"""

from __future__ import annotations

from typing import NamedTuple

from ..staging.units import UnitWaits
from .comms import TracedAllGather, TracedReduceScatter
from .hooks import GatherHook, ScatterHook
from .replicas import ReplicaReduction
from .stamps import Stamps
from .torch_groups import Comms, ParameterGroup
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
    """A parameter group and what it communicates with while it is traced.

    ``scatter``: its reduce-scatter, whose hook may change between steps.
    """

    def __init__(
        self, group: ParameterGroup, stamps: Stamps, hooks: Hooks, waits: UnitWaits | None
    ) -> None:
        self.group = group
        self._before = gather, scatter, theirs = group.comms
        reduction, over = None, None
        if group.replicas is not None or theirs is not None:
            reduction = ReplicaReduction(theirs, stamps, group.replicas, group.will_call)
            over = None if group.replicas is None else reduction.begins
        self.scatter = TracedReduceScatter(scatter, stamps, over, hooks.reduce_scatter)
        gather = TracedAllGather(gather, stamps, hooks.all_gather)
        self.ours = group.comms = Comms(gather, self.scatter, reduction)
        self._waits = watched(group, waits)

    @property
    def is_anothers(self) -> bool:
        """Whether the group was traced again, which takes it from here."""
        now = self.group.comms.all_gather
        return now is not self.ours.all_gather and isinstance(now, TracedAllGather)

    def undo(self) -> None:
        """Give the group back what it had, but for what somebody else has set since."""
        if self._waits is not None:
            self._waits.undo()
        now = zip(self.group.comms, self.ours, self._before, strict=True)
        self.group.comms = Comms(*(before if one is ours else one for one, ours, before in now))


def untrace(group: ParameterGroup) -> None:
    """Give a group back what it had before any tracing."""
    unwatch(group)
    traced = (TracedAllGather, TracedReduceScatter, ReplicaReduction)
    group.comms = Comms(*(one.inner if isinstance(one, traced) else one for one in group.comms))
