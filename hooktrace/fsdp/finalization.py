"""Backward passes that the script finalises by hand (torch 2.15): a step ends there.

module.finalize_backward() --> reduces what is left, waits --> the model's step is over
module.finalize_backward(async_op=True) --> reduces --> handle.wait() --> the step is over
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..staging.units import ShardedModel

_steps = weakref.WeakKeyDictionary[nn.Module, weakref.ref[ShardedModel]]()


def hear_of_finalization(modules: Iterable[nn.Module], steps: ShardedModel) -> None:
    """Tell a model's steps when one of its sharded modules is finalised by hand."""
    _steps.update(dict.fromkeys(modules, weakref.ref(steps)))
    _listen()


@functools.cache
def _listen() -> None:
    """Have FSDP's modules tell; once a process."""
    kind: Any = FSDPModule
    finalize = getattr(kind, "finalize_backward", None)
    if finalize is None:
        return

    @functools.wraps(finalize)
    def heard(self: Any, *, async_op: bool = False) -> Any:
        # Called of a root; what is traced may be a part of it.
        known = [_steps[module]() for module in self.modules() if module in _steps]
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

    @functools.wraps(wait)
    def waited() -> None:
        wait()
        handle.__dict__.pop("wait", None)  # or the two would hold each other
        for steps in traced:
            steps.finalized()

    return waited
