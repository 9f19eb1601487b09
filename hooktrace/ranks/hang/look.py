"""Where the models of a rank stand, and which of their calls are in flight.

    ModelState.slots[*].last_call --> CallInFlight, one a bucket --> ModelStatus

Read from outside, while the training thread goes on, without a lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...records.units import ordinal
from ...staging.calls import NOT_YET, BucketCall
from ...staging.devices import relax_capture_mode
from ...staging.slots import Departure, ModelState
from .messages import CallInFlight, ModelStatus

_MOST = 16
"""Models, and of a model the lowest buckets in flight: the first of them tells most."""


def look(models: Iterable[ModelState], now_ns: int) -> tuple[ModelStatus, ...]:
    """Return where models stand; of two with one name, of two tracers, the later one."""
    found = {model.name: model for model in models if model.slots}
    return tuple(_of_model(model, now_ns) for model in [*found.values()][:_MOST])


def oldest_call(models: Iterable[ModelState]) -> BucketCall | None:
    """Return the call in flight that began first, ``None`` where there is none."""
    calls = [call for model in models for call in last_calls(model) if _is_awaited(call)]
    return min(calls, key=lambda call: call.ready, default=None)


def training_threads(models: Iterable[ModelState]) -> list[int]:
    """Return the threads that hooks were called on, that of the newest model first."""
    threads = [slot.thread for model in models for slot in list(model.slots.values())]
    return list(dict.fromkeys(threads[::-1]))


def last_calls(model: ModelState) -> list[BucketCall]:
    """Return the last call of each bucket, in flight or over."""
    slots = [slot.last_call for slot in list(model.slots.values())]
    return [call for call in (*slots, model.beside) if isinstance(call, BucketCall)]


def _is_awaited(call: BucketCall) -> bool:
    """Return whether a call has not ended, or its device has not come to its end."""
    return call.in_flight or _is_on_device(call)


def _is_on_device(call: BucketCall) -> bool:
    """Return whether a device has still to do what the host has issued.

    An event that another call records meanwhile answers for that one: whoever asks asks again.
    """
    if call.done == NOT_YET or call.device_over or call.unknown or not call.events:
        return False
    try:
        relax_capture_mode()  # whichever thread asks
        return not call.events[-1].query()
    except Exception:  # of a device that is lost: training hears of it itself
        return False


def _of_model(model: ModelState, now_ns: int) -> ModelStatus:
    calls = sorted(last_calls(model), key=position_of)
    waiting = [call for call in calls if _is_awaited(call)]
    last = calls[-1] if calls else None
    unit = None if last is None else last.slot.unit
    has_turn = unit is None and any(call.started is not None for call in waiting)
    step, bucket = _position(model, last)
    departure, (ended, count) = model.departure, model.ended
    return ModelStatus(
        model=model.name,
        hook=model.hook,
        step=step,
        bucket=bucket,
        in_flight=tuple(_in_flight(call, has_turn, now_ns) for call in waiting[:_MOST]),
        last_call_age_ns=None if last is None else now_ns - last.ready,
        unit="" if unit is None else str(unit),
        order=-1 if unit is None else model.position[1],
        ended_step=ended,
        ended_calls=count,
        departure="" if departure is None else _departed(departure),
        departed_step=-1 if departure is None else departure.step,
    )


def position_of(call: BucketCall) -> tuple[int, int]:
    """Return the step of a call, and its bucket or how many of a sharded step began before."""
    slot = call.slot
    return call.step, slot.index if slot.unit is None else call.order


def _departed(found: Departure) -> str:
    before = "nothing more" if found.before is None else f"{found.before}"
    number = ordinal(found.order + 1)
    return f"{found.now} as the {number}, where step {found.step - 1} had {before}"


def _position(model: ModelState, last: BucketCall | None) -> tuple[int, int]:
    """Return the last call's step and bucket, or those that were counted and not recorded since.

    A call that hooktrace still looks at has been counted, and has not begun.
    """
    counted = model.position
    if last is None:
        return counted[0], -1
    if last.slot.unit is not None:
        return counted[0], last.slot.index
    return counted if counted > (last.step + 1, last.slot.index) else (last.step, last.slot.index)


def _in_flight(call: BucketCall, has_turn: bool, now_ns: int) -> CallInFlight:
    operation, known = call.operation, None
    with suppress(Exception):  # of an operation of the user's own
        known = None if operation is None else operation.describe()
    return CallInFlight(
        model=call.slot.model.name,
        hook=call.slot.model.hook,
        step=call.step,
        bucket=call.slot.index,
        stage=_stage(call, operation is not None, has_turn),
        age_ns=now_ns - call.ready,
        rounds=len(call.rounds),
        collective="" if known is None else known.kind,
        group_size=0 if known is None else known.group.size,
        unit="" if call.slot.unit is None else str(call.slot.unit),
        order=call.order,
        members=None if known is None or call.slot.unit is None else known.group.members,
    )


def _stage(call: BucketCall, on_the_wire: bool, has_turn: bool) -> str:
    if not call.hook_called:
        return "meeting"
    if call.done != NOT_YET:
        return "check" if call.in_flight else "device"
    if not call.staged:
        return "hook" if call.launched is None else "future_wait"
    if on_the_wire:
        return "wire"
    if call.rounds:
        return "decompress"
    return "serialization_wait" if has_turn and call.started is None else "compress"
