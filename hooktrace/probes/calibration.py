"""A calibration: some steps in which gradients are timed one by one, and hooks are tried.

    steps   0      1 .. 4   5 .. 11  12     13 .. 16  17 .. 23  24     25 .. 28  29
            watch  compute  trials   watch  compute   trials    watch  compute   watch --> over
    compute: StepTimes --> ComputeRecord
    trials: one hook after another, each in two steps, trial_step.py --> TrialRecord

They are counted from ``first`` on, the same on all ranks, so no rank asks another one.  Computing
is timed before, between and after the trials: how much it differs is noise.  The first step after
trials has caches and memory as they left them, and is only watched.

All of it is a probe: the calls are marked as such, and the steps count in no timings.  A trial
takes the training thread's time, so each hook has ``_SHARE`` of a step for all of its own, and what
those before it have left, whatever the model: parts of a bucket are tried first, and what would
take longer than is left is not.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from ..capture.buckets import BucketSlot, in_backward
from ..capture.step_times import GradientTimes, ProcessorTimes, StepTimes
from ..records import ComputeRecord
from ..staging.groups import group_of
from .schedule import OFF
from .step_sampler import LOOKED, CallStart, Look, Part, Sink
from .trial import Candidate
from .trial_step import StepOfTrials

logger = logging.getLogger("hooktrace")

_COMPUTE_STEPS = 4
_SHARE = 0.35
_LEAST_NS = 1_000_000
_UNKNOWN_PERIOD_NS = 50_000_000


class Roles:
    """What each step of a calibration is for: a hook's trials begin in one, and end in the next."""

    def __init__(self, trials: int) -> None:
        half = -(-trials // 2)
        between = ["watch", *["compute"] * _COMPUTE_STEPS]
        tried = ([*some, "last"] if some else [] for some in (range(half), range(half, trials)))
        self._roles = [*between, *next(tried), *between, *next(tried), *between, "watch"]

    def __len__(self) -> int:
        return len(self._roles)

    def computes(self, position: int) -> bool:
        """Return whether a step's computing is recorded."""
        return 0 <= position < len(self) and self._roles[position] == "compute"

    def trial(self, position: int) -> int | None:
        """Return the trials of which hook begin in a step."""
        role = self._roles[position]
        return role if isinstance(role, int) else None


class Calibration(Part):
    """Calibrates one model from step ``first`` on, once.

    ``candidates``: the hooks that are tried.
    """

    def __init__(self, candidates: Sequence[Candidate], first: int) -> None:
        self._candidates = candidates
        self._roles = Roles(len(candidates))
        self._first = first
        self.next_step = first
        self._times: StepTimes | None = None
        self._watched: set[BucketSlot] = set()
        self._step = -1
        self._whole_from = 0
        self._began = 0
        self._periods: list[int] = []
        self._pending: tuple[ComputeRecord, ProcessorTimes | None] | None = None
        self._trials: StepOfTrials | None = None
        self._worker = ThreadPoolExecutor(1, "hooktrace-trial")  # no thread before the first trial
        self._before: StepOfTrials | None = None
        """Trials that have begun in the step before."""
        self._refused: set[str] = set()
        self._left_ns = 0
        self._made = 0

    @property
    def steps(self) -> int:
        """How many steps it takes."""
        return len(self._roles)

    def enter(self, start: CallStart, sink: Sink) -> Look | None:
        """Time a step, or try a hook; raises nothing."""
        if self.next_step == OFF or not in_backward(start.bucket):
            return None
        if not (start.slot.device_type == "cpu" and start.slot.is_dense):
            self._end()
            logger.warning(
                "%s is not calibrated: a calibration needs dense gradients on a CPU, whose times "
                "the host's clock tells; training goes on",
                start.slot.model.name,
            )
            return None
        try:
            self._enter(start, sink)
        except Exception as error:  # what is tried here must not become training's trouble
            self._end()
            why = f"{type(error).__name__}: {error}"
            logger.warning(
                "the calibration of %s ends: %s; training goes on", start.slot.model.name, why
            )
        return LOOKED

    def leave(self) -> None:
        """Take away what was registered."""
        self._end()

    def begin_in_child(self) -> None:
        """Take away what was registered, in the child."""
        self._end()

    def _enter(self, start: CallStart, sink: Sink) -> None:
        slot, step = start.slot, start.step
        if step != self._step:
            self._begin_step(start, sink)
        position = step - self._first
        if position >= len(self._roles):
            self._end()
            logger.info(
                "%s is calibrated: steps %d to %d, %d trial(s) of hooks",
                slot.model.name, self._first, step - 1, self._made,
            )  # fmt: skip
            return
        self._watch(start, sink)
        if self._before is not None:
            self._made += self._before.finish(start, sink)
        if self._trials is not None:
            self._trials.begin(start, sink)
        if slot.is_last:
            self._left_ns -= 0 if self._trials is None else self._trials.spent_ns
            self._end_step(slot, step)

    def _begin_step(self, start: CallStart, sink: Sink) -> None:
        """Finish the step before, of which only this one tells the end."""
        times, step = self._times, start.step
        if times is not None:
            optimizer_ns = times.take_optimizer_ns()
            self._finish(sink, step, optimizer_ns, times.began)
        was_compute = self._roles.computes(self._step - self._first)
        if was_compute and step == self._step + 1:
            self._periods.append(start.ready - self._began)
        self._before = self._trials if step == self._step + 1 else None
        self._step, self._began, self._trials = step, start.ready, None
        position = step - self._first
        tried = self._roles.trial(position) if position < len(self._roles) else None
        if tried is not None:
            self._trials = self._trials_of(self._candidates[tried], start)

    def _trials_of(self, candidate: Candidate, start: CallStart) -> StepOfTrials | None:
        if candidate.label in self._refused or not candidate.fits(start.slot.torch_dtype):
            return None
        period = statistics.median(self._periods) if self._periods else _UNKNOWN_PERIOD_NS
        group = _group(start)
        if group is None:
            self._refused.update(one.label for one in self._candidates)
            logger.warning(
                "no hook is tried on %s: it has no process group that is known, whose ranks would "
                "count",
                start.slot.model.name,
            )
            return None
        self._left_ns = max(_LEAST_NS, self._left_ns + int(_SHARE * period))
        return StepOfTrials(candidate, group, self._left_ns, self._refused, self._worker)

    def _watch(self, start: CallStart, sink: Sink) -> None:
        """Have the gradients of a bucket timed from the next step on."""
        slot = start.slot
        if slot in self._watched:
            return
        if self._times is None or any(s.generation != slot.generation for s in self._watched):
            self._watch_model(start, sink)
        assert self._times is not None
        self._watched.add(slot)
        self._whole_from = start.step + 1
        names = [name for name, _ in slot.parameters]
        self._times.watch_parameters(zip(names, start.bucket.parameters(), strict=True))

    def _watch_model(self, start: CallStart, sink: Sink) -> None:
        if self._times is not None:
            self._times.remove()
        self._watched.clear()
        times = self._times = StepTimes(sink.clock)
        times.watch_optimizers()
        ddp = _ddp(start)
        if ddp is not None:
            times.watch_forward(ddp)

    def _end_step(self, slot: BucketSlot, step: int) -> None:
        assert self._times is not None
        taken = self._times.take_gradients()
        is_whole = step >= self._whole_from and bool(taken.names)
        if is_whole and self._roles.computes(step - self._first):
            self._pending = _compute_record(slot, step, taken), taken.began
        self._times.take_optimizer_ns()

    def _finish(
        self, sink: Sink, step: int, optimizer_ns: int | None, began: ProcessorTimes | None
    ) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        record, first = pending
        processor_ns = thread_ns = None
        if step == record.step + 1 and began is not None and first is not None:
            processor_ns = began.process_ns - first.process_ns
            thread_ns = began.thread_ns - first.thread_ns
        sink.push(
            ComputeRecord(
                model=record.model,
                generation=record.generation,
                step=record.step,
                parameters=record.parameters,
                ready_ns=record.ready_ns,
                forward_ns=record.forward_ns,
                optimizer_ns=optimizer_ns if step == record.step + 1 else None,
                processor_ns=processor_ns,
                thread_ns=thread_ns,
            )
        )

    def _end(self) -> None:
        self.next_step = OFF
        times, self._times = self._times, None
        self._watched.clear()
        self._trials = self._before = None
        self._worker.shutdown(wait=False)
        if times is not None:
            times.remove()


def _compute_record(slot: BucketSlot, step: int, taken: GradientTimes) -> ComputeRecord:
    return ComputeRecord(
        model=slot.model.name,
        generation=slot.generation,
        step=step,
        parameters=taken.names,
        ready_ns=taken.ready_ns,
        forward_ns=taken.forward_ns,
    )


def _ddp(start: CallStart) -> torch.nn.Module | None:
    """Return the DDP model whose bucket it is, ``None`` where it is not known."""
    known = start.slot.model.ddp
    ddp = None if known is None else known()
    own = start.bucket.parameters()[0]
    is_its = ddp is not None and any(p is own for p in ddp.parameters())
    return ddp if is_its else None


def _group(start: CallStart) -> dist.ProcessGroup | None:
    """Return the group that the model's gradients are averaged over; ``None`` if there is none."""
    if not dist.is_initialized():
        return None
    ddp: Any = _ddp(start)
    if ddp is not None and isinstance(getattr(ddp, "process_group", None), dist.ProcessGroup):
        return ddp.process_group  # type: ignore[no-any-return]
    try:
        return group_of(start.state)
    except TypeError:
        return group_of(None)
