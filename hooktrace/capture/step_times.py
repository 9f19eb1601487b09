"""When each gradient of a step is ready, and what is around it: forward, optimizer, processor time.

    parameter --its gradient is there--> note --> ready: by name, host ns     before DDP's own hook
    DDP model --forward hooks--> forward_ns        torch's optimizers --step hooks--> optimizer_ns

Each of them is a hook of torch's, which is there from ``watch_...`` to ``remove`` and not a step
longer.  None holds a parameter, changes a value or raises.  A gradient that comes several times
before the step's last bucket (micro-steps under ``no_sync``, a parameter that is used twice) counts
when it came last; one that does not come is not there.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .clocks import Clock


class ProcessorTimes(NamedTuple):
    """Processor time so far of the process, and of the thread on which gradients come, ns."""

    process_ns: int
    thread_ns: int


def processor_times() -> ProcessorTimes:
    """Return those of now."""
    return ProcessorTimes(time.process_time_ns(), time.thread_time_ns())


class GradientTimes(NamedTuple):
    """One backward pass: names in the order in which gradients came, host ns of each.

    ``forward_ns``: of the forward pass before it, ``began``: processor times when the first one
    came; ``None`` where not seen.
    """

    names: tuple[str, ...]
    ready_ns: tuple[int, ...]
    forward_ns: int | None
    began: ProcessorTimes | None


class StepTimes:
    """Takes the times of one model's steps."""

    def __init__(
        self, clock: Clock, processor_clock: Callable[[], ProcessorTimes] = processor_times
    ) -> None:
        self._clock = clock
        self._processor_clock = processor_clock
        self._handles: list[Any] = []
        self._ready: dict[str, int] = {}
        self._forward_ns: int | None = None
        self._forward_start: int | None = None
        self._optimizer_ns: int | None = None
        self._optimizer_start = 0
        self._optimizer_depth = 0
        self.began: ProcessorTimes | None = None
        """Processor times when the first gradient came, of those that were not taken yet."""

    def watch_parameters(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Note when gradients are ready.  Raises ``RuntimeError`` for what is no leaf."""
        for name, parameter in named:
            note = self._noting(name)
            self._handles.append(parameter.register_post_accumulate_grad_hook(note))

    def _noting(self, name: str) -> Callable[[torch.Tensor], None]:
        def note(_: torch.Tensor) -> None:
            try:
                if not self._ready:
                    self.began = self._processor_clock()
                self._ready[name] = self._clock()
            except Exception:  # of a clock: this gradient's time is not known
                self._ready.pop(name, None)

        return note

    def watch_forward(self, model: torch.nn.Module) -> None:
        """Note how long forward passes take that have a backward pass to come."""
        self._handles += [
            model.register_forward_pre_hook(_Hook(self._forward_begins)),
            model.register_forward_hook(_Hook(self._forward_ends)),
        ]

    def watch_optimizers(self) -> None:
        """Note how long the steps of optimizers take, all of the process's together."""
        for register, hook in (
            (register_optimizer_step_pre_hook, self._optimizer_begins),
            (register_optimizer_step_post_hook, self._optimizer_ends),
        ):
            handle = register(_Hook(hook))
            self._handles.append(handle)
            weakref.finalize(self, handle.remove)  # a model that is let go of, its tracer with it

    def take_gradients(self) -> GradientTimes:
        """Return the times since the last call; at the hook's call for a step's last bucket."""
        ready = sorted(self._ready.items(), key=lambda item: item[1])
        self._ready.clear()
        taken = GradientTimes(
            tuple(name for name, _ in ready),
            tuple(ns for _, ns in ready),
            self._forward_ns,
            self.began,
        )
        self._forward_ns, self.began = None, None
        return taken

    def take_optimizer_ns(self) -> int | None:
        """Return how long optimizers took since the last call; ``None`` where none was seen."""
        taken, self._optimizer_ns, self._optimizer_depth = self._optimizer_ns, None, 0
        return taken

    def remove(self) -> None:
        """Take all hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._ready.clear()

    def _forward_begins(self) -> None:
        if torch.is_grad_enabled():
            self._ready.clear()  # of micro-steps before: what counts is the pass that sends
            self._forward_start = self._clock()

    def _forward_ends(self) -> None:
        start, self._forward_start = self._forward_start, None
        if start is not None:
            self._forward_ns = self._clock() - start

    def _optimizer_begins(self) -> None:
        self._optimizer_depth += 1
        if self._optimizer_depth == 1:  # of one that wraps another one, the outer one counts
            self._optimizer_start = self._clock()

    def _optimizer_ends(self) -> None:
        self._optimizer_depth -= 1
        if self._optimizer_depth == 0:
            took = self._clock() - self._optimizer_start
            self._optimizer_ns = (self._optimizer_ns or 0) + took


class _Hook:
    """A hook of a module or of optimizers, which wants none of its arguments, and never raises.

    It holds what it calls by weak reference.  A copy of the model, pickled or not, has a hook in
    its place that does nothing: nobody would ever take it away there.
    """

    def __init__(self, method: Callable[[], None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, *_: object) -> None:
        method = self._method()
        if method is not None:
            with suppress(Exception):  # of a clock
                method()

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _none, ()


def _none() -> Callable[..., None]:
    return _does_nothing


def _does_nothing(*_: object) -> None:
    return
