"""A rank's calls in flight: where its models stand, and whether one waits for too long.

    ModelState.slots[*].last_call --look--> CallInFlight, one a bucket --> ModelStatus
                                  --Watchdog, each second--> Suspicion: begun, changed, over
    usual durations, asked for only once a call is ten seconds old ----+

Read from outside, while the training thread goes on, without a lock.

A suspicion is a question, not an alarm: what all ranks say decides.  A rank that is slow and waits
for nobody suspects nothing; the others, which wait for it, do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...records.units import ordinal
from ...staging.calls import NOT_YET, BucketCall
from ...staging.devices import relax_capture_mode
from ...staging.slots import Departure, ModelState
from .evidence import NOWHERE, ThreadStack
from .messages import CallInFlight, ModelStatus, RankStatus, Suspicion
from .snapshot import NOTHING

if TYPE_CHECKING:
    from ...tracing.process_channel import TracerHangs

_MOST = 16
"""Models, and of a model the lowest buckets in flight: the first of them tells most."""

LEAST_NS = 10_000_000_000
"""A call that is not older is never suspected, unless the user has set another limit."""

_TIMES_USUAL = 20
"""So many times the 99th percentile of a model's bucket durations is too long."""

_AGAIN_NS = 5_000_000_000
"""After which a suspicion is said again: the hub may not have been reached."""


def look(models: Iterable[ModelState], now_ns: int) -> tuple[ModelStatus, ...]:
    """Return where models stand; of two with one name, of two tracers, the later one."""
    found = {model.name: model for model in models if model.slots}
    return tuple(_of_model(model, now_ns) for model in [*found.values()][:_MOST])


def oldest_call(models: Iterable[ModelState]) -> BucketCall | None:
    """Return the call in flight that began first, ``None`` where there is none."""
    calls = [call for model in models for call in last_calls(model) if _is_awaited(call)]
    return min(calls, key=lambda call: call.ready, default=None)


def training_thread(threads: Iterable[ThreadStack], models: Iterable[ModelState]) -> ThreadStack:
    """Return the stack of the thread that trains: that on which the newest model's hook was called.

    On a device that is the engine's, which tells nothing: it is the main thread then.
    """
    called = [slot.thread for model in models for slot in list(model.slots.values())]
    main = threading.main_thread().ident or 0
    by_ident = {thread.ident: thread for thread in threads if not thread.foreign}
    return next((by_ident[i] for i in [*called[::-1], main] if i in by_ident), NOWHERE)


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
        members=(known and known.group.members) or call.slot.blank.members,
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


class Watchdog:
    """Watches one tracer's models.  ``portrait``: this rank's status.

    A call is suspected after the tracer's ``hang_after_s``; by default after ten seconds, or 20
    times the 99th percentile of its model's buckets where that is longer.
    """

    def __init__(self, watched: TracerHangs, portrait: Callable[[], RankStatus]) -> None:
        self._watched = watched
        self._portrait = portrait
        limit_s = watched.hang_after_s
        self._least_ns = LEAST_NS if limit_s is None else int(limit_s * 1e9)
        self.suspicion: Suspicion | None = None
        """What waits too long, by the last look."""
        self._said_ns = 0
        self._call: BucketCall | None = None
        """The one that was suspected last: it has what it raised."""
        self._before = NOTHING
        self._stands: tuple[object, int] = None, 0
        """In which collective outside of hooks the training thread stands, and since when."""

    def look(self) -> Suspicion | None:
        """Return what is new: a suspicion, the same one after some seconds, or that it is over."""
        now, oldest = self._watched.clock(), oldest_call(self._watched.model_states())
        found, said = self._suspicion(now, oldest), self.suspicion
        if said is not None and (found is None or found.place != said.place):
            return self._over()  # of another one the next look tells
        if found is None or (said is not None and now - self._said_ns < _AGAIN_NS):
            return None
        self.suspicion, self._said_ns, self._call = found, now, oldest
        return found

    def close(self) -> Suspicion | None:
        """Return that a suspicion is over, if there is one: nobody will know any more."""
        is_waiting = self._call is None or self._call.in_flight
        return self._over("the tracer was closed" if is_waiting else "")

    def _suspicion(self, now: int, oldest: BucketCall | None) -> Suspicion | None:
        if oldest is None:
            return self._standing(now)
        slot, age, limit = oldest.slot, now - oldest.ready, self._least_ns
        place = (slot.model.name, *position_of(oldest))
        if self.suspicion is not None and self.suspicion.place == place:
            return self.suspicion  # it waits still, whatever has become usual meanwhile
        if age > limit and self._watched.hang_after_s is None:
            limit = max(limit, _TIMES_USUAL * (self._watched.usual_ns(slot.model.name) or 0))
        if age <= limit:
            return None
        return Suspicion(place=place, threshold_ns=limit)

    def _standing(self, now: int) -> Suspicion | None:
        """Suspect a collective of torch's own that the training thread stands in.

        It is looked at only where no hook was called for as long as would be suspected.
        """
        models = self._watched.model_states()
        newest = max((call.ready for model in models for call in last_calls(model)), default=0)
        if not newest or now - newest <= self._least_ns:
            self._before, self._stands = NOTHING, (None, now)
            return None
        before, self._before = self._before, self._portrait()
        stands = self._before.stands_in(before)
        if stands != self._stands[0]:
            self._stands = stands, now
        if stands is None or now - self._stands[1] <= self._least_ns:
            return None
        return Suspicion(place=("", -1, -1), threshold_ns=self._least_ns)

    def _over(self, error: str = "") -> Suspicion | None:
        said, call, self.suspicion, self._call = self.suspicion, self._call, None, None
        if call is not None and call.error:
            error = call.error[:200]
        return said and replace(said, over=True, error=error)
