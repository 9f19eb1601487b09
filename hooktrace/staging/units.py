"""The steps of a sharded model (FSDP2): what is a bucket of DDP's is a unit's collective here.

    FSDP --all-gather, reduce-scatter--> fsdp/comms.py --begin--> slot, UnitCall   stamped there
    autograd's engine, at the end of a pass in which gradients were reduced --> StepCalls --> ring

FSDP has no fixed list of buckets: slots are made as calls are met, one for each unit, collective,
phase and turn within a step, and a step that adds some begins a rebuild.

A *step* is all that was communicated up to the end of a backward pass that reduced gradients, or
to where the script finalises that by hand (torch 2.15), without evaluation.  A pass inside another
one, as of a re-entrant checkpoint, ends no step.

On a device FSDP's collectives run on streams of their own.  Who waits for one of them waits for all
that its stream has run before; so each call is waited for once (``UnitWaits``), from an event that
is recorded on the computing stream just before.  Nothing here waits; what fails is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from ..records import Unit
from ..records.bucket import UnitCollective
from .backward import current_pass, is_checkpointed, watch_after
from .calls import NOT_YET, BucketCall, Collective, StepCalls
from .devices import EventPool, current_stream, refuse_captured_stream, which
from .groups import group_info, members_of
from .ring import Loss
from .slots import BucketSlot, Departure, FlatBucket, ModelState

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer


Phase = Literal["forward", "backward"]


@dataclass(eq=False, slots=True)
class UnitPlace:
    """Where in a step a unit has collectives of a kind; ``repeat``: of the last one in ``step``.

    ``slots``: of those that it had there, by repeat, size, dtype and group.
    """

    collective: UnitCollective
    phase: Phase
    step: int = -1
    repeat: int = -1
    slots: dict[tuple[int, int, torch.dtype, int], BucketSlot] = field(default_factory=dict)


class UnitCall(BucketCall):
    """A unit's call, which its step keeps until that is over; ``begin`` sets its slots."""

    __slots__ = ("bare", "exposed", "order")

    def finished(self) -> None:
        """Stamp that the result is there."""
        if self.on_device:
            self.record()
        self.stamp("done")


MOST_SIZES = 16
"""Of one collective that have a number each; others, as of experts, share one more.  Else each step
would begin a rebuild."""

MOST_CALLS = 1 << 14
"""Of one step; in a loop that never reduces gradients more would fill the memory."""


class UnitInfo(NamedTuple):
    """A unit: what its records call it, and the names and whole shapes of its parameters."""

    name: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


class UnitWaits:
    """The calls that no computing stream has waited for yet, by the stream that they are on.

    ``pool``: where events come from.  ``push``: takes what failed.  One for all models of a tracer,
    from any thread: they may share FSDP's streams.
    """

    def __init__(self, pool: EventPool, push: Callable[[object], object]) -> None:
        self._pool = pool
        self._push = push
        self._lock = threading.Lock()
        self._lines: dict[Hashable, list[BucketCall]] = {}
        self._last: dict[tuple[int, UnitCollective], BucketCall] = {}

    def begins(self, call: BucketCall, unit: object, collective: UnitCollective) -> None:
        """Take note of a call that begins on the current stream.  Raises what a device raises."""
        call.stream = which(current_stream(call.slot.device))
        with self._lock:
            self._lines.setdefault(call.stream, []).append(call)
            self._last[id(unit), collective] = call

    def last(self, unit: object, collective: UnitCollective) -> BucketCall | None:
        """Return a unit's last call of a kind in the step under way; ``None``: there is none."""
        return self._last.get((id(unit), collective))

    def before(self, *calls: BucketCall | None, streams: Iterable[Hashable] = ()) -> None:
        """Take note that the current stream is about to wait for calls, if it has not before.

        ``streams``: and for all that they have run.
        """
        awaited: list[BucketCall] = []
        with self._lock:
            for stream in streams:
                awaited += self._lines.pop(stream, ())
            for call in calls:
                if call is not None:
                    awaited += self._up_to(call)
        if awaited:
            self._record(awaited)

    def forget(self, model: ModelState | None = None) -> None:
        """Let go of a model's calls, or of all: when they are waited for is not known."""
        with self._lock:
            for stream, line in list(self._lines.items()):
                line[:] = [call for call in line if model not in (None, call.slot.model)]
                if not line:
                    del self._lines[stream]
            for at, call in list(self._last.items()):
                if model in (None, call.slot.model):
                    del self._last[at]

    def lose(self, error: Exception) -> None:
        """Count what was raised where a wait was looked at, and let go of all calls."""
        self.forget()
        self._push(Loss.of_stamps(error))

    def _up_to(self, last: BucketCall) -> list[BucketCall]:
        line = self._lines.get(last.stream, [])
        if last not in line:
            return []
        before = line[: line.index(last)]
        # An asynchronous call ends where it is waited for itself, and is on no stream of FSDP's.
        running = [call for call in before if call.done == NOT_YET]
        line[: len(before) + 1] = running
        return [*(call for call in before if call.done != NOT_YET), last]

    def _record(self, awaited: list[BucketCall]) -> None:
        device = awaited[0].slot.device
        try:
            refuse_captured_stream(device)
            here = which(current_stream(device))
            # What the computing stream ran itself, as of unshard(), it has stood still for already.
            on_others = [call for call in awaited if call.stream != here or call.done == NOT_YET]
            models = {id(call.slot.model) for call in on_others}
            # Each model's step has an event of its own, which nobody else gives back.
            events = {model: (self._pool.record(device),) for model in models}
        except Exception as error:  # of a device: what is exposed of these is not known
            self._push(Loss.of_stamps(error))
            return
        for call in awaited:
            call.before_wait = ()
        for call in on_others:
            call.before_wait = events[id(call.slot.model)]


class ShardedModel:
    """Counts the steps of one sharded model and keeps the calls of the one that is under way.

    ``state``: what the rest of hooktrace knows of a model.  ``is_whole``: returns whether all units
    are still recorded.  ``waits``: of a model on a device.  ``waits_for_script``: returns whether
    the script is still to finalise the passes so far.  Calls come from one thread at a time.
    """

    def __init__(
        self,
        state: ModelState,
        sink: Tracer,
        is_whole: Callable[[], bool] = lambda: True,
        waits: UnitWaits | None = None,
        *,
        waits_for_script: Callable[[], bool] = lambda: False,
    ) -> None:
        self.state = state
        self.models = [state]
        self._sink = sink
        self._is_whole = is_whole
        self._waits = waits
        self._waits_for_script = waits_for_script
        self.is_finalizing = False
        """Whether FSDP is reducing what is left of the passes so far: no pass runs then."""
        self._places: dict[tuple[str, UnitCollective, Phase], UnitPlace] = {}
        self._numbers: dict[Unit, list[int]] = {}
        self._calls: list[BucketCall] = []
        self._before: list[BucketCall] = []
        """The calls of the step before, where all of them are known."""
        self._departed = False
        self._passes: list[int] = []
        self._called: list[int] = []
        self._under_way = self._reduces = self._lacks = self._grows = self._announced = False
        self._evaluates = False
        self._place = UnitPlace("all_gather", "forward")

    def forward_begins(self, module: int, *, training: bool = True) -> None:
        """Take note that the model is called, or a part of it; ``module``: which one.

        Without gradients it is evaluated, unless a re-entrant checkpoint has called it.
        """
        if module in self._called:  # an interrupt ended that call, and nobody was told
            self.forward_ended(module)
        task = current_pass()
        if not self._called:
            without = not torch.is_grad_enabled()
            self._evaluates = without and not (training and is_checkpointed())
            if task == -1:
                self._passes.clear()  # what is left there failed
            self._lacks |= not self._is_whole()
        self._called.append(module)
        if task != -1 and self._under_way and task not in self._passes:
            self._watch(task)

    def forward_ended(self, module: int) -> None:
        """Take note that the call is over."""
        if module in self._called:
            del self._called[self._called.index(module) :]

    def takes(self, unit: UnitInfo, collective: UnitCollective) -> bool:
        """Count a call, and return true; false of one that is of no step: of an evaluation."""
        task = current_pass()
        phase: Phase = "backward"
        if task == -1 and not self.is_finalizing:
            phase = "forward"
            if (self._evaluates and self._called) or torch.is_inference_mode_enabled():
                return False
        state = self.state
        state.beside = None
        if not self._under_way:
            self._under_way = True
            state.last_index = -1  # before the step: whoever reads both sees none that is not there
            state.step += 1
        state.last_index += 1
        if task != -1 and task not in self._passes:
            self._watch(task)
        self._reduces |= collective != "all_gather"
        at = unit.name, collective, phase
        place = self._places.get(at)
        if place is None:
            place = self._places[at] = UnitPlace(collective, phase)
        place.repeat = place.repeat + 1 if place.step == state.step else 0
        place.step = state.step
        self._place = place
        return True

    def _watch(self, task: int) -> None:
        if watch_after(partial(self.end_pass, task)):
            self._passes.append(task)

    def miss(self) -> None:
        """Take note that a call of the step under way is not recorded."""
        self._lacks = True

    def begin(
        self, unit: UnitInfo, payload: torch.Tensor, ready: int, group: Any = None
    ) -> BucketCall | None:
        """Return the call that ``takes`` has counted last, which begins; ``None``: one too many.

        ``group``: ``None`` where nobody knows which one.  Raises what a device raises.
        """
        if len(self._calls) >= MOST_CALLS:
            self._lacks = True
            why = f"{self.state.name} has made {MOST_CALLS} collectives in one step"
            self._sink.push(Loss("step_too_long", why))
            return None
        place = self._place
        key = place.repeat, payload.numel(), payload.dtype, id(group)
        slot = place.slots.get(key)
        if slot is None:
            collective, phase, repeat = place.collective, place.phase, place.repeat
            kind = Unit(name=unit.name, collective=collective, phase=phase, repeat=repeat)
            slot = self._new_slot(unit, kind, payload, group)
            if len(self._numbers[kind]) <= MOST_SIZES:
                place.slots[key] = slot
        order = self.state.last_index
        call = UnitCall(slot, self.state.step, ready, self._sink)
        call.order, call.bare, call.exposed = order, False, None
        if slot.has_events:
            call.begin_on_device()
            if self._waits is not None:
                self._waits.begins(call, unit, place.collective)
        slot.last_call = call
        self._calls.append(call)
        known = self._before
        if known and not self._departed:
            before = known[order].slot if order < len(known) else None
            if before is not slot:
                self._depart(slot, order, before)
        return call

    def _depart(self, slot: BucketSlot, order: int, before: BucketSlot | None) -> None:
        self._departed = True
        was = None if before is None else before.unit
        if slot.unit is not None and was != slot.unit:
            self.state.departure = Departure(self.state.step, order, slot.unit, was)

    def expect(self, slot: BucketSlot, ready: int) -> BucketCall:
        """Return what stands for a collective while FSDP is in it, which is recorded afterwards."""
        call = BucketCall(slot, self.state.step, ready, self._sink)
        call.order = self.state.last_index + 1
        self.state.beside = call
        return call

    def _new_slot(
        self, info: UnitInfo, unit: Unit, payload: torch.Tensor, group: Any
    ) -> BucketSlot:
        state, numbers = self.state, self._numbers.setdefault(unit, [])
        if len(numbers) <= MOST_SIZES:
            numbers.append(len(state.slots))
            state.rebuild += self._announced and not self._grows
            self._grows = True
        index = numbers[-1]
        members = None if group is None else members_of(group)
        flat = FlatBucket((), payload, index, is_last=False)
        slot = state.slots[index] = BucketSlot(
            state, flat, index, (), unit, members=members, parameters=info.parameters
        )
        if group is not None:
            facts = group_info(group, slot.device_type)
            slot.collective = Collective(
                unit.collective, slot.gradient_bytes, slot.torch_dtype, facts
            )
        return slot

    def leave(self) -> None:
        """End the step under way, which is not over: nobody records the rest of it."""
        if self._under_way:
            self._lacks = True
            self.end_step()

    def end_pass(self, task: int, failed: bool) -> None:
        """Take note that a backward pass is over; the step is, if gradients were reduced in it."""
        if task in self._passes:
            self._passes.remove(task)
            if failed:
                self._lacks = True
                self.end_step()
        if not self._passes and not failed:
            self.finalized()

    def finalized(self) -> None:
        """End the step if gradients were reduced in it, and nobody is to finalise it later."""
        if self._reduces and not self._waits_for_script():
            self.end_step()

    def end_step(self) -> None:
        """Send the step under way to the ring: its layout, where that is new, and its calls."""
        calls, self._calls, self._passes = self._calls, [], []
        complete = self._is_whole() and not self._lacks
        if self._waits is not None:
            self._waits.forget(self.state)  # what is waited for later is another step's to know
        if self._under_way:
            self.state.ended = self.state.step, self.state.last_index + 1
            self._before = calls if complete else []
        self.state.beside, self._departed = None, False
        self._under_way = self._reduces = self._lacks = False
        if not calls:
            return
        state = self.state
        if self._grows:
            self._grows, self._announced = False, True
            last = max(state.slots)
            for index, slot in state.slots.items():
                slot.is_last = index == last
            self._sink.push(state.layout(state.step, calls[-1].ready, ()))
        self._sink.push(StepCalls(calls, state.rebuild, complete=complete))
