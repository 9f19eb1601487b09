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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import is_inference_mode_enabled

from ..records import Unit
from ..records.bucket import UnitCollective
from .backward import after_pass_end, current_pass, is_checkpointed
from .calls import NOT_YET, BucketCall, Collective, StepCalls
from .devices import EventPool, refuse_captured_stream, stream_of, which
from .groups import group_info, members_of
from .ring import ALARMED, RECORDING, Loss
from .slots import BucketSlot, Departure, ModelState

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer


class UnitInfo(NamedTuple):
    """A unit: what its records call it, and the names and whole shapes of its parameters."""

    name: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


SlotKey = tuple[int, int, torch.dtype, int]
"""What tells a unit's calls of a kind apart: repeat, elements, dtype, and ``id`` of the group."""


@dataclass(eq=False, slots=True)
class UnitPlace:
    """Where in a step a unit has collectives of a kind; ``repeat``: of the last one in ``step``.

    ``slots``: of those that it had there.  ``slot``: the last one's, of which ``key`` is.
    """

    unit: UnitInfo
    collective: UnitCollective
    phase: Literal["forward", "backward"]
    step: int = -1
    repeat: int = -1
    key: SlotKey | None = None
    slot: BucketSlot | None = None
    slots: dict[SlotKey, BucketSlot] = field(default_factory=dict)


UnitPlaces: TypeAlias = tuple[UnitPlace, UnitPlace]
"""Those of one collective, in the forward and in the backward phase."""


class UnitCall(BucketCall):
    """A unit's call, which its step keeps until that is over; ``begin`` sets its slots."""

    __slots__ = ("bare", "exposed", "order")


MOST_SIZES = 16
"""Of one collective that have a number each; others, as of experts, share one more.  Else each step
would begin a rebuild."""

MOST_CALLS = 1 << 14
"""Of one step; in a loop that never reduces gradients more would fill the memory."""


_new = object.__new__


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
        call.stream = which(stream_of(call.slot.device.index))
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
            here = which(stream_of(device.index))
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
        self._places: dict[tuple[str, UnitCollective], UnitPlaces] = {}
        self._numbers: dict[Unit, list[int]] = {}
        self._calls = StepCalls(0)
        self._before: list[BucketSlot] = []
        """Of the calls of the step before, where all of them are known."""
        self._departed = False
        self._passes: list[int] = []
        self.called: int | None = None
        """The ``id`` of the module within whose call all others run."""
        self._under_way = self._reduces = self._lacks = self._grows = self._announced = False
        self._evaluates = False

    def forward_begins(self, module: int, *, training: bool = True) -> None:
        """Take note that the model is called, or a part of it; ``module``: the ``id`` of which one.

        Without gradients it is evaluated, unless a re-entrant checkpoint has called it.
        """
        task = current_pass()
        # Called within itself: an interrupt ended that call, and nobody was told.
        if self.called is None or self.called == module:
            self.called = module
            without = not torch.is_grad_enabled()
            self._evaluates = without and not (training and is_checkpointed())
            if task == -1:
                self._passes.clear()  # what is left there failed
            self._lacks |= not self._is_whole()
        if task != -1 and self._under_way and task not in self._passes:
            self._watch(task)

    def _watch(self, task: int) -> None:
        if after_pass_end(partial(self.end_pass, task)):
            self._passes.append(task)

    def fail(self, call: BucketCall | None, stage: str, error: BaseException) -> None:
        """Take note that a collective raised: the step ends here, for whatever caught it."""
        if call is not None:
            call.failed(stage, error)
        self.leave()

    def places_of(self, unit: UnitInfo, collective: UnitCollective) -> UnitPlaces:
        """Return where a unit has collectives of a kind."""
        found = self._places.get((unit.name, collective))
        if found is None:
            found = UnitPlace(unit, collective, "forward"), UnitPlace(unit, collective, "backward")
            self._places[unit.name, collective] = found
        return found

    def begin(  # noqa: PLR0912, PLR0915, PLR0917  # a call more, or by keywords, costs a microsecond
        self,
        places: UnitPlaces,
        payload: torch.Tensor,
        group: Any = None,
        ready: int | None = None,
        bare: bool = False,
        missed: bool = False,
    ) -> UnitCall | None:
        """Count a collective, and return its call, which begins now, or began at ``ready``.

        ``group``: ``None`` where nobody knows which one.  ``bare``: all of the call is this
        collective, as torch runs it.  ``missed``: it is counted, and not recorded.

        Returns ``None`` where it is not recorded, as of an evaluation, which is no step's, or of
        one too many for a step.  Raises ``AnomalyError`` where one was seen and is to end training.
        """
        tracer = self._sink
        if tracer.state is ALARMED:
            tracer.raise_alarm()
        try:
            if not tracer.started and tracer.state is RECORDING:
                tracer.start()  # before the stamp: the collective has not begun
            if missed or tracer.state is not RECORDING:
                ready = None
            elif ready is None:
                clock = tracer.clock
                ready = clock()
            task = current_pass()
            forward, place = places
            if task != -1:
                if task not in self._passes:
                    self._watch(task)
            elif not self.is_finalizing:
                place = forward
                if (self._evaluates and self.called is not None) or is_inference_mode_enabled():
                    return None
            state = self.state
            state.beside = None
            if not self._under_way:
                self._under_way = True
                # Before the step: whoever reads both sees none that is not there.
                state.last_index = -1
                state.step += 1
            order = state.last_index = state.last_index + 1
            step = state.step
            self._reduces |= place.collective != "all_gather"
            place.repeat = repeat = place.repeat + 1 if place.step == step else 0
            place.step = step
            if ready is None or len(self._calls) >= MOST_CALLS:
                self._lacks = True
                if ready is not None:
                    why = f"{state.name} has made {MOST_CALLS} collectives in one step"
                    tracer.push(Loss("step_too_long", why))
                return None
            key = repeat, payload.numel(), payload.dtype, id(group)
            slot = place.slot
            if slot is None or key != place.key:
                slot = place.slots.get(key) or self._new_slot(place, key, payload, group)
                place.key, place.slot = key, slot
            # As its ``__init__`` does, which would take a microsecond.
            call = _new(UnitCall)
            call.slot = slot
            call.step = step
            call.ready = ready
            call.launched = call.operation = call.collective = call.exposed = None
            call.done = NOT_YET
            call.clock = tracer.clock
            call.on_device = False
            call.order = order
            call.bare = bare
            if slot.has_events:
                call.begin_on_device(tracer.event_pool)
                if self._waits is not None:
                    self._waits.begins(call, place.unit, place.collective)
                if bare:
                    call.record()
            if bare:
                call.issued_at = ready
                call.operation = slot.collective
            slot.last_call = call
            self._calls.append(call)
            known = self._before
            if known and not self._departed:
                before = known[order] if order < len(known) else None
                if before is not slot:
                    self._depart(slot, order, before)
            return call
        except Exception as error:  # of a clock, a device: this collective goes on untraced
            self._lacks = True
            tracer.push(Loss.of_stamps(error))
            return None

    def _depart(self, slot: BucketSlot, order: int, before: BucketSlot | None) -> None:
        self._departed = True
        was = None if before is None else before.unit
        if slot.unit is not None and was != slot.unit:
            self.state.departure = Departure(self.state.step, order, slot.unit, was)

    def expect(self, slot: BucketSlot, ready: int) -> None:
        """Have it known that FSDP is in a collective of its own, as in the last one of a slot."""
        call = BucketCall(slot, self.state.step, ready, self._sink.clock)
        call.order = self.state.last_index + 1
        self.state.beside = call
        if slot.collective is not None:
            call.issued(slot.collective)

    def _new_slot(
        self, place: UnitPlace, key: SlotKey, payload: torch.Tensor, group: Any
    ) -> BucketSlot:
        info, collective = place.unit, place.collective
        unit = Unit(name=info.name, collective=collective, phase=place.phase, repeat=place.repeat)
        state, numbers = self.state, self._numbers.setdefault(unit, [])
        if len(numbers) <= MOST_SIZES:
            numbers.append(len(state.slots))
            state.rebuild += self._announced and not self._grows
            self._grows = True
        index = numbers[-1]
        members = None if group is None else members_of(group)
        slot = BucketSlot(state, payload, index, info.parameters, unit=unit, members=members)
        state.slots[index] = slot
        if group is not None:
            facts = group_info(group, slot.device_type)
            slot.collective = Collective(collective, slot.gradient_bytes, slot.torch_dtype, facts)
        if len(numbers) <= MOST_SIZES:
            place.slots[key] = slot
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
        calls, self._calls, self._passes = self._calls, StepCalls(0), []
        complete = self._is_whole() and not self._lacks
        if self._waits is not None:
            self._waits.forget(self.state)  # what is waited for later is another step's to know
        if self._under_way:
            self.state.ended = self.state.step, self.state.last_index + 1
            self._before = [call.slot for call in calls] if complete else []
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
        calls.end(state.rebuild, complete=complete)
        self._sink.push(calls)
