"""The local error: what compress and decompress alone do to this rank's gradients.

    bucket --clone--> the hook's generator, on a copy of its state --payload--> Operation.echo()
                                   ^                                                |
                                   +------ as if all ranks had given the same ------+
    result against the bucket --compare--> ProbeResult --> ring

Nothing is sent and no other rank is asked, so it also works where only some ranks trace, or on one.
What the hook keeps between calls (error feedback, a warm start, random numbers) is copied for the
trial and left as it was, which on a sampled step takes the memory of the state once more.
"""

from __future__ import annotations

import copy
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..staging.driver import Steps, run_answered
from ..staging.slots import BucketSlot, FlatBucket
from ..staging.streams import keep_for_current_stream, tensors_in
from .compare import compared, finite_parts, lengths_of
from .probe import residual_of
from .probe_result import ProbeResult
from .schedule import OFF, Schedule
from .step_sampler import CallStart, Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")


class LocalProbes(Part):
    """Measures the local error of one model's staged hook, every ``every`` steps.

    ``steps``: makes the hook's generator of a state and a bucket.
    """

    def __init__(
        self, steps: Callable[[Any, Any], Steps], every: int, *, all_buckets: bool
    ) -> None:
        self._steps = steps
        self._schedule = Schedule(every, every, all_buckets)
        self.next_step = every

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Measure a bucket, if it is its turn; raises nothing."""
        slot, step = start.slot, start.step
        is_due = self._schedule.takes(step, slot.index, len(slot.model.slots))
        if is_due:
            try:
                self._try(start, sink)
            except Exception as error:  # the trial's trouble must not become training's
                self.stop(slot, f"{type(error).__name__}: {error}")
        if slot.is_last and self.next_step != OFF:
            self.next_step = self._schedule.next_after(step)
        return is_due

    def replan(self, first: int, number: int) -> bool:
        """Measure the ``number`` steps from ``first`` on, too."""
        self._schedule = replace(self._schedule, burst=range(first, first + number))
        self.next_step = min(self.next_step, first)
        return True

    def stop(self, slot: BucketSlot, why: str) -> None:
        """Measure no more, and say why."""
        self.next_step = OFF
        logger.warning(
            "local error of %s is no longer measured: %s; training goes on", slot.model.name, why
        )

    def _try(self, start: CallStart, sink: Tracer) -> None:
        slot, bucket, state = start.slot, start.bucket, start.state
        own = bucket.buffer().detach()
        lengths = lengths_of(slot.parameters)
        if slot.device_type != "cpu":  # made on streams of callbacks, and copied on this one
            keep_for_current_stream(tensors_in(state))
        checked = ProbeResult(
            slot=slot, step=start.step, rank=0, local=True, scope="local", ready=start.ready
        )
        copied = FlatBucket(bucket.parameters(), own.clone(), bucket.index(), bucket.is_last())
        result = tried(self._steps, state, copied, slot.device)
        found = compared(result, own, lengths, residual_of(state, slot.index))
        checked.push(sink, **found, finite=finite_parts(own, lengths))


def tried(
    steps: Callable[[Any, Any], Steps], state: Any, copied: Any, device: torch.device
) -> torch.Tensor:
    """Return the flat result of a hook that is run on trial: nothing is sent, nothing is changed.

    ``steps``: makes the hook's generator of its state, of which it gets a copy, and of ``copied``,
    which has copies of what the hook may write to.
    """
    with random_state_kept(device), torch.no_grad():
        generator = steps(copy_of_state(state), copied)
        return run_answered(generator, methodcaller("echo")).flatten()


def copy_of_state(state: Any) -> Any:
    """Return a copy of a hook's state that has the same process groups."""
    if state is None or isinstance(state, dist.ProcessGroup):
        return state
    slots = [s for kind in type(state).__mro__ for s in getattr(kind, "__slots__", ())]
    values = {s: getattr(state, s) for s in slots if hasattr(state, s)}
    values |= getattr(state, "__dict__", {})
    if not values:
        return copy.deepcopy(state)
    # Attribute by attribute: what a state leaves out when it is pickled, as its group, is wanted.
    groups = [value for value in values.values() if isinstance(value, dist.ProcessGroup)]
    # Other buckets' callbacks may be at work on the state.  These copies are made in one piece.
    for name, value in values.items():
        if isinstance(value, dict | list | set):
            values[name] = copy.copy(value)
    copied = object.__new__(type(state))
    for name, value in copy.deepcopy(values, {id(group): group for group in groups}).items():
        object.__setattr__(copied, name, value)
    return copied


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Leave the random number generators of the process and of a device as they were."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = None if numpy is None else numpy.random.get_state()
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device.index], device.type)
    with torch.random.fork_rng(devices, device_type=kind):
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)
