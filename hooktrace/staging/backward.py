"""The backward pass that runs: which one, when it has ended, and whether its loss is scaled.

    last bucket's call --at_pass_end--> one callback a pass --the engine, at its end--> over(failed)

DDP waits for its buckets in such a callback, too, which it queues when its last hook has returned;
the engine runs them in their order, so the first one of all models comes before any of them waits.
Under re-entrant checkpoints it is the end of the inner pass that counts: there DDP waits.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

import torch
import torch.autograd.graph
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointFunction

from ..records.errors import HookError

graph_task_id: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
"""Names the backward pass of this thread, -1 where there is none; ``None``: torch does not tell."""
_engine: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
queue_callback: Callable[[Callable[[], None]], None] | None
queue_callback = getattr(_engine, "queue_callback", None)
"""Runs a function at the end of this thread's backward pass; ``None``: torch does not."""
ENGINE = "_engine_run_backward"
"""What torch calls the function in ``torch.autograd.graph`` that runs a backward pass."""
engine_code: Any = getattr(getattr(torch.autograd.graph, ENGINE, None), "__code__", None)
"""Its code, which is on the stack below what DDP's reducer calls; ``None``: torch has none."""
current_pass: Callable[[], int] = graph_task_id or (lambda: -1)
"""Returns which backward pass runs on this thread, -1 where none does or torch tells none."""


def at_pass_end(over: Callable[[bool], object]) -> bool:
    """Have ``over(failed)`` called when the backward pass ends that runs here; false: none does.

    What ``over`` raises fails the pass, once all have been called; it may not where that failed.
    """
    task = current_pass()
    if task == -1 or queue_callback is None:
        return False
    known = _passes.get(task)
    under_way = None if known is None else known()
    if under_way is None:
        under_way = _Pass(task)
        _passes[task] = weakref.ref(under_way)
        queue_callback(under_way)
    under_way.watching.append(over)
    return True


def after_pass_end(over: Callable[[bool], None]) -> bool:
    """As ``at_pass_end``, but after the callbacks that other parts have queued for the pass's end.

    FSDP reduces its last gradients in some of those.
    """
    queue = queue_callback
    if queue is None:
        return False
    return at_pass_end(lambda failed: over(True) if failed else queue(partial(over, False)))


class _Pass:
    """A backward pass, as the engine holds it: called at its end, or let go of when it failed."""

    __slots__ = ("__weakref__", "task", "watching")

    def __init__(self, task: int) -> None:
        self.task = task
        self.watching: list[Callable[[bool], object]] = []

    def __del__(self) -> None:
        if self.watching:
            self(failed=True)

    def __call__(self, failed: bool = False) -> None:
        # Hooks may still come, from other callbacks: under a static graph all of the first pass do.
        _passes.pop(self.task, None)
        watching, self.watching = self.watching, []
        call_all(watching, failed)


def call_all(functions: Iterable[Callable[[Any], object]], argument: object) -> None:
    """Call each function; the first ``HookError`` is raised when all were called."""
    errors = []
    for function in functions:
        try:
            function(argument)
        except HookError as error:
            errors.append(error)
    if errors:
        raise errors[0]


# Not a ``WeakValueDictionary``, which is written in Python: 2.8 µs a step in place of 5.2.
_passes: dict[int, weakref.ref[_Pass]] = {}

_BY_HAND = "require_manual_backward_finalization"
_CAN_WAIT_LATER = hasattr(DistributedDataParallel, _BY_HAND)
_by_hand: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def waits_later(ddp: weakref.ref[Any] | None) -> bool:
    """Whether a DDP model waits when the script says so, not at the pass's end (torch 2.15).

    ``ddp``: ``None`` where it is not known; then it may be any of the process that does.
    """
    if not _CAN_WAIT_LATER:
        return False
    return bool(_by_hand) if ddp is None else getattr(ddp(), _BY_HAND, False)


@functools.cache
def hear_of_finalization() -> None:
    """Take note of it when a DDP model is to be finalised by hand; once a process."""
    if not _CAN_WAIT_LATER:
        return
    required = getattr(DistributedDataParallel, _BY_HAND)

    def heard(self: Any, by_hand: bool) -> None:
        required.fset(self, by_hand)
        (_by_hand.add if by_hand else _by_hand.discard)(self)

    setattr(DistributedDataParallel, _BY_HAND, required.setter(heard))


def is_checkpointed() -> bool:
    """Return whether a re-entrant checkpoint has made this call; it does so without gradients."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not CheckpointFunction.forward.__code__:
        frame = frame.f_back
    return frame is not None


_scaled = [False]


def is_loss_scaled() -> bool:
    """Return whether the loss under way is scaled; of this process, whichever the model.

    ``scaler.step`` leaves a step out whose gradients are not finite: they do no harm.
    """
    return _scaled[0]


@functools.cache
def hear_of_scalers() -> None:
    """Have scalers say when they scale and when they are done; once a process."""
    _hear_of("scale", lambda scaler: scaler.is_enabled() or _scaled[0])
    _hear_of("update", lambda _: False)


def _hear_of(name: str, scales: Callable[[GradScaler], bool]) -> None:
    method = getattr(GradScaler, name)

    @functools.wraps(method)
    def heard(self: GradScaler, *args: Any, **options: Any) -> Any:
        _scaled[0] = scales(self)
        return method(self, *args, **options)

    setattr(GradScaler, name, heard)
