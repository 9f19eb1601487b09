"""Anomalies of a hook as a whole: where it is not called, and where it is known to fail.

    DDP model --post-accumulate hook of one parameter--> _PassCounter ---+--> AnomalyRecord, one of
                  the hook's steps have not moved?  _PASSES in a row         each kind --> tracer

Backward passes do not call the hook where ``ddp.module(...)`` is called and not ``ddp(...)``, or
where the forward pass was under ``no_sync()`` and the backward pass was not: then each rank trains
a model of its own.
"""

from __future__ import annotations

import gc
import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

from ..records import AnomalyRecord
from ..records.anomalies import anomaly_kind
from ..staging.job import current_rank
from ..staging.ring import Loss
from ..staging.slots import LayoutTracker
from .tracer import Tracer

_PASSES = 100
"""More than a parameter is used in one backward pass under reentrant checkpointing."""


class HookNotices:
    """Records what is to be said of one traced hook, each kind once.

    ``model``: the name of the first model that the hook serves.
    """

    def __init__(self, tracer: Tracer, layout: LayoutTracker, model: str) -> None:
        self._tracer = tracer
        self._layout = layout
        self._model = model
        self._untraced = 0
        self._watching: list[torch.utils.hooks.RemovableHandle] = []

    def watch(self, ddp: DistributedDataParallel) -> None:
        """Record it when backward passes of ``ddp`` do not call the hook; holds neither.

        Passes under ``no_sync()`` do not count.
        """
        parameter = next((p for p in ddp.module.parameters() if p.requires_grad), None)
        if parameter is not None:
            counter = _PassCounter(ddp, self)
            counter.handle = parameter.register_post_accumulate_grad_hook(counter)
            self._watching.append(counter.handle)
            # Its parameters outlive it where they are wrapped again.
            weakref.finalize(ddp, counter.handle.remove).atexit = False

    def rest(self) -> None:
        """Watch no model any more: another hook is called there now."""
        while self._watching:
            self._watching.pop().remove()

    def fails_on_gloo(self, how: str) -> None:
        """Record how the hook, one of torch's, fails."""
        self._note("fails_on_gloo", f"fails: {how} on gloo")

    def called_untraced(self) -> None:
        """Take note that DDP called the hook, though nothing else is known of the call."""
        self._untraced += 1

    def count_steps(self) -> int:
        """Return a number that changes when the hook is called in a backward pass."""
        return self._untraced + sum(model.position[0] + 1 for model in self._layout.models)

    def not_synchronised(self, passes: int) -> None:
        """Record that DDP did not call the hook; raises nothing, which would fail backward."""
        try:
            self._note(
                "not_synchronised",
                f"was not called in {passes} backward passes in which DDP was to synchronise, so "
                "the ranks train apart",
            )
        except Exception as error:  # of a clock
            self._tracer.push(Loss.of_stamps(error))

    def _note(self, kind: str, what: str) -> None:
        if not self._tracer.recording:
            return
        self._tracer.start()
        last = self._layout.models[-1] if self._layout.models else None
        what = f"{what}; {anomaly_kind(kind).fix}"
        self._tracer.push(
            AnomalyRecord(
                kind=kind,
                model=self._model,
                hook=self._layout.hook,
                rebuild=last.rebuild if last else 0,
                step=max(last.first_step, last.step) if last else self._tracer.first_step,
                bucket=-1,
                stage="hook",
                time_ns=self._tracer.clock(),
                rank=current_rank(),
                message=f"hook {self._layout.hook!r} of {self._model} {what}",
            )
        )


class _PassCounter:
    """Called in each backward pass of ``ddp``; holds neither the model nor the hook."""

    handle: torch.utils.hooks.RemovableHandle

    def __init__(self, ddp: DistributedDataParallel, notices: HookNotices) -> None:
        self._ddp = weakref.ref(ddp)
        self._notices = weakref.ref(notices)
        self._steps = -1
        self._passes = 0
        self._others: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()

    def __call__(self, parameter: torch.Tensor) -> None:
        ddp, notices = self._ddp(), self._notices()
        if ddp is None or notices is None or not ddp.require_backward_grad_sync:
            return
        steps = notices.count_steps()
        self._passes = self._passes + 1 if steps == self._steps else 0
        self._steps = steps
        if self._passes < _PASSES:
            return
        self._others = self._others or _others_with(parameter, ddp)
        if self._others:  # it may be one of them that synchronises
            self._passes = 0
            return
        self.handle.remove()
        notices.not_synchronised(self._passes)


def _others_with(
    parameter: torch.Tensor, ddp: DistributedDataParallel
) -> weakref.WeakSet[DistributedDataParallel]:
    """Return the other DDP objects of a parameter; looks at all objects, so only before a claim."""
    found = [o for o in gc.get_objects() if issubclass(type(o), DistributedDataParallel)]
    found = [o for o in found if o is not ddp and any(p is parameter for p in o.parameters())]
    return weakref.WeakSet(found)
