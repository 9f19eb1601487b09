"""Backward passes that should have called a hook and did not.

    DDP model --post-accumulate hook of one parameter, once a backward pass--> _PassCounter
                     the traced hook's steps have not moved?  count;  _PASSES in a row: one anomaly

It happens where ``ddp.module(...)`` is called and not ``ddp(...)``, or where the forward pass was
under ``no_sync()`` and the backward pass was not: then each rank trains a model of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..capture.layout import LayoutTracker

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_PASSES = 100
"""More than a parameter is used in one backward pass under reentrant checkpointing."""


def watch_for_missed_calls(
    ddp: DistributedDataParallel, layout: LayoutTracker, report: Callable[[int], None]
) -> None:
    """Call ``report`` with the number of passes, once, when the hook of ``layout`` is not called.

    Passes under ``no_sync()`` do not count.  Holds neither the model nor the hook.
    """
    if getattr(ddp, "_use_python_reducer", False):
        return  # the hook is part of a compiled graph there, and not called as such
    parameter = next((p for p in ddp.module.parameters() if p.requires_grad), None)
    if parameter is not None:
        counter = _PassCounter(ddp, layout, report)
        counter.handle = parameter.register_post_accumulate_grad_hook(counter)


class _PassCounter:
    def __init__(
        self,
        ddp: DistributedDataParallel,
        layout: LayoutTracker,
        report: Callable[[int], None],
    ) -> None:
        self._ddp = weakref.ref(ddp)
        self._layout = weakref.ref(layout)
        self._report = report
        self._steps = -1
        self._passes = 0
        self.handle: torch.utils.hooks.RemovableHandle | None = None

    def __call__(self, _: torch.Tensor) -> None:
        ddp, layout = self._ddp(), self._layout()
        if ddp is None or layout is None or not ddp.require_backward_grad_sync:
            return
        steps = sum(model.step + 1 for model in layout.models)
        self._passes = self._passes + 1 if steps == self._steps else 0
        self._steps = steps
        if self._passes == _PASSES:
            self._report(self._passes)
            if self.handle is not None:
                self.handle.remove()
