"""Hybrid sharding's all-reduce over replicas, seen from both of its sides.

the unit's reduce-scatter is over --begins--> (FSDP's own all-reduce) --FSDP's hook--> a call
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..staging.devices import has_events
from ..staging.ring import RECORDING
from ..staging.slots import BucketSlot
from ..staging.units import ShardedModel
from ..tracing.tracer import Tracer
from .torch_groups import AllReduceHook, ParameterGroup


class ReplicaReduction:
    """What is called with a unit's reduced gradients: tells of FSDP's own all-reduce over replicas.

    ``inner``: the hook that was there before, which is recorded as one call, whatever it does.
    ``group``: of the unit, which may have no replicas.  FSDP runs that all-reduce itself, and it is
    seen from both of its sides: it begins when the unit's reduce-scatter is over, and has ended
    when FSDP calls the hook that this is; what is between them is at most a few additions more.
    Over one rank there is no reduce-scatter: it then begins where FSDP has the memory for it, and a
    copy is between them.  ``end``: ends the tracing of the whole model.
    """

    def __init__(
        self,
        inner: AllReduceHook | None,
        group: ParameterGroup,
        model: ShardedModel,
        tracer: Tracer,
        end: Callable[[], None],
    ) -> None:
        self.inner = inner
        self.end = end
        self._model, self._tracer = model, tracer
        self._places = model.places_of(group.unit, "all_reduce")
        self._group = group
        self._replicas = group.replicas
        self._slot: BucketSlot | None = None
        self._began: int | None = None
        self._event: torch.Event | None = None

    def begins(self, device: torch.device) -> None:
        """Take note that the reduce-scatter is over, on its stream.

        Where gradients are accumulated no all-reduce follows.
        """
        self._began, unused = None, self._event
        self._event = None
        if unused is not None:
            self._tracer.event_pool.give(device, unused)
        if self._tracer.state is not RECORDING:
            return
        try:
            if has_events(device):
                self._event = self._tracer.event_pool.record(device)
            self._began = self._tracer.clock()
            if self._slot is not None and self._group.will_call(self):
                self._model.expect(self._slot, self._began)
        except Exception:  # of a clock, a device: this all-reduce is not recorded
            self._began = None

    def __call__(self, reduced: torch.Tensor) -> None:
        """Record the all-reduce, and call the hook that was there before."""
        if self._replicas is not None:
            self._record(reduced)
        if self.inner is not None:
            self._call_inner(self.inner, reduced)

    def _record(self, reduced: torch.Tensor) -> None:
        (began, self._began), (event, self._event) = (self._began, None), (self._event, None)
        call = None
        if began is None:
            self._model.begin(self._places, reduced, missed=True)
        else:
            call = self._model.begin(self._places, reduced, self._replicas, began, bare=True)
        if event is not None:
            if call is not None and call.events:
                # This stream has the all-reduce before it: it was not ready just now, but then.
                event, call.events[0] = call.events[0], event
            self._tracer.event_pool.give(reduced.device, event)
        if call is not None:
            call.over()
            self._slot = call.slot

    def _call_inner(self, inner: AllReduceHook, reduced: torch.Tensor) -> None:
        call = self._model.begin(self._places, reduced, None)
        if call is not None:
            call.staged = False
        try:
            inner(reduced)
        except BaseException as error:
            self._model.fail(call, "hook", error)
            raise
        if call is not None:
            call.over()
