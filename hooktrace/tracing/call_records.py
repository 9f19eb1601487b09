"""The records of a step and of its calls, from times and numbers that are known by then.

What a plain hook sent torch's process groups tell, from 2.14 on; before, it is not known.  A
recorder of torch's own, the Flight Recorder, is private, often off, and forgets the step in a busy
job: it is asked only what a hang is about (``ranks/hang/collectives.py``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from msgspec.structs import replace

from ..records import BucketRecord, DeviceSpan, ErrorRecord, Stage, StepRecord, Transfer
from ..records.intervals import bus_bytes, exposed_ns, union_ns
from ..staging import group_hooks
from ..staging.calls import BucketCall, Collective, joined
from ..staging.driver import PlainRun
from .stage_times import CallTimes

N = TypeVar("N", int, float)

Sent = tuple[Transfer, ...] | None
"""What was sent, by collective and dtype; ``None`` where stages say it, or it cannot be known."""

_OLDER = "torch before 2.14 does not tell"  # short: it is in each step
_INSIDE = "a plain hook inside another, or what has no size, does not tell"
_UNSEEN = (
    "torch's process groups tell of no collective of the hook: it sends nothing, or by other ways"
)


def sent_in_step(calls: Sequence[BucketCall]) -> tuple[Sequence[Sent], Sent, str | None]:
    """Return what each call of a step sent, what all of them did, and why that is not known."""
    nothing: list[Sent] = [None] * len(calls)
    unseen = [call for call in calls if not call.staged and call.unknown is None]
    if not unseen or calls[0].slot.unit is not None:
        return nothing, None, None
    if not all(isinstance(call, PlainRun) for call in unseen):
        return nothing, None, _INSIDE
    if not group_hooks.available:
        return nothing, None, _OLDER
    plain = [call for call in calls if isinstance(call, PlainRun) and call.is_watched]
    if len(plain) < len(calls):  # a model's first call comes before torch is asked to tell
        return nothing, None, None
    for call in plain:
        if call.in_doubt or not call.seen:
            return nothing, None, call.in_doubt or _UNSEEN
    issued = [[one.collective for one in call.seen] for call in plain]
    sizes = [[(one.kind, joined(one.dtype), one.wire_bytes) for one in own] for own in issued]
    return [_summed(own) for own in sizes], _summed(itertools.chain(*sizes)), None


def _summed(sizes: Iterable[tuple[str, str, int]]) -> tuple[Transfer, ...]:
    """Return one transfer for each collective and dtype."""
    sums: Counter[tuple[str, str]] = Counter()
    for kind, dtype, size in sizes:
        sums[kind, dtype] += size
    return tuple(
        Transfer(collective=kind, dtype=dtype, wire_bytes=size)
        for (kind, dtype), size in sorted(sums.items())
    )


def _stages(call: BucketCall, times: CallTimes) -> tuple[Stage, ...]:
    if call.bare:  # one collective, which is all of its call
        stages = [_wire(one.collective, times.ready, times.done) for one in times.collectives]
    elif call.staged:
        stages = _staged(times)
    elif times.launched is None:
        stages = [Stage(name="future_wait", start_ns=times.ready, end_ns=times.done)]
    else:
        stages = [
            Stage(name="hook", start_ns=times.entered, end_ns=times.launched),
            Stage(name="future_wait", start_ns=times.launched, end_ns=times.done),
        ]
    if times.entered > times.ready:
        stages.insert(0, Stage(name="check", start_ns=times.ready, end_ns=times.entered))
    if times.released > times.done:
        stages.append(Stage(name="check", start_ns=times.done, end_ns=times.released))
    return tuple(stages)


def _wire(what: Collective, start: int, end: int, *, derived: bool = False) -> Stage:
    """Return the stage of one collective."""
    return Stage(
        name="wire",
        start_ns=start,
        end_ns=end,
        derived=derived,
        collective=what.kind,
        wire_bytes=what.wire_bytes,
        dtype=str(what.dtype).removeprefix("torch."),
    )


def _staged(times: CallTimes) -> list[Stage]:
    stages: list[Stage] = []
    at = times.started
    if at > times.entered:
        stages.append(Stage(name="serialization_wait", start_ns=times.entered, end_ns=at))
    for one in times.collectives:
        issued, arrived = one.issued_ns, one.arrived_ns
        stages.append(Stage(name="compress", start_ns=at, end_ns=issued))
        start = issued if one.start_ns is None else one.start_ns
        if start > issued:
            stages.append(Stage(name="queue", start_ns=issued, end_ns=start, derived=True))
        stages.append(_wire(one.collective, start, arrived, derived=one.start_ns is not None))
        at = arrived
    name: Literal["compress", "decompress"] = "decompress" if times.collectives else "compress"
    stages.append(Stage(name=name, start_ns=at, end_ns=times.done))
    return stages


def _total(numbers: Sequence[N | None]) -> N | None:
    """Return a sum; ``None`` where one of the numbers is not known."""
    return None if None in numbers else sum(numbers)  # type: ignore[arg-type]


def bucket_record(
    call: BucketCall,
    host: CallTimes,
    device: CallTimes | None,
    *,
    rebuild: int,
    warmup: bool,
    bounded: bool,
    error: ErrorRecord | None,
    sent: Sent,
) -> BucketRecord:
    """Return the record of a call; ``host`` and ``device`` are its times in each clock.

    ``bounded``: of its step, not all calls were timed.
    """
    slot = call.slot
    wire_bytes = None if sent is None else sum(one.wire_bytes for one in sent)
    bus: float | None = None
    if call.staged:
        wire_bytes = bus = 0
        for one in host.collectives:
            kind, size, _, group = one.collective
            more = bus_bytes(kind, size, group.size)
            wire_bytes += size
            bus = None if bus is None or more is None else bus + more
        sent = None
    usual = replace(
        slot.blank,
        rebuild=rebuild,
        step=call.step,
        ready_ns=host.ready,
        launched_ns=host.done if host.launched is None else host.launched,
        done_ns=host.released,
        # On a device the host's stamps only say when work was enqueued: they are not stages.
        stages=_stages(call, host) if slot.device_type == "cpu" and not bounded else (),
        wire_bytes=wire_bytes,
        bus_bytes=bus,
        is_last=slot.is_last,
    )
    checked = call.entered is not None
    rare = device or call.join_dummy or warmup or checked or call.error or error or slot.unit
    if not (rare or sent is not None or bounded):
        return usual  # each further field costs as much as all of these
    span = None
    if device is not None:
        span = DeviceSpan(ready_ns=device.ready, done_ns=device.done, stages=_stages(call, device))
    return replace(
        usual,
        device=span,
        join_dummy=call.join_dummy,
        warmup=warmup,
        checked=checked,
        bounded=bounded,
        exception=call.error,
        error=error,
        sent=sent,
        exposed_ns=call.exposed if device is None else device.exposed,
    )


def step_record(
    buckets: tuple[BucketRecord, ...],
    previous: StepRecord | None,
    *,
    hidden_to: Sequence[int | None],
    done: Sequence[int],
    complete: bool,
    sent: Sent,
    sent_unknown: str | None,
) -> StepRecord:
    """Return the record of a step; ``buckets`` in order, ``previous`` of the same model.

    ``hidden_to``: until when backward hides communication, as the call of each bucket tells.
    ``done``: when buckets were done by the host, of all of which that is known, if of any.
    """
    first = buckets[0]
    spans = [b.interval_ns for b in buckets]
    known = [s for s in spans if s is not None]
    resolved = len(known) == len(spans)
    ready = [b.ready_ns for b in buckets]
    wire = [(s.start_ns, s.end_ns) for b in buckets for s in b.timed_stages if s.name == "wire"]
    first_ready = min(ready)
    sharded = first.unit is not None
    ends, exposed = [end for end in hidden_to if end is not None], None
    if sharded:
        exposed = _total([b.exposed_ns for b in buckets])
    elif len(ends) == len(buckets) and buckets[-1].is_last:  # or nobody saw backward's end
        # What was not timed on the host is done by then, and what is exposed has its own time.
        if first.clock == "host":
            exposed = exposed_ns(max(ends), max(done or [b.done_ns for b in buckets]))
        elif resolved:
            exposed = exposed_ns(max(ends), max(end for _, end in known))
    period = None
    # It runs between the first buckets of neighbouring steps, and both must be there.
    if complete and previous and previous.counts and previous.step == first.step - 1:
        period = first_ready - previous.first_ready_ns
    return StepRecord(
        model=first.model,
        hook=first.hook,
        rebuild=first.rebuild,
        step=first.step,
        clock=first.clock,
        first_ready_ns=first_ready,
        last_ready_ns=max(ready),
        done_ns=max([b.done_ns for b in buckets]),
        communication_ns=union_ns(known) if resolved else None,
        exposed_ns=exposed,
        wire_in_flight_ns=union_ns(wire) if resolved and wire else None,
        previous_period_ns=period,
        gradient_bytes=sum([b.gradient_bytes for b in buckets]),
        wire_bytes=_total([b.wire_bytes for b in buckets]),
        bus_bytes=_total([b.bus_bytes for b in buckets]),
        bucket_count=len(buckets),
        join_dummy=all(b.join_dummy for b in buckets),
        warmup=first.warmup,
        complete=complete,
        checked=any(b.checked for b in buckets),
        sent=sent,
        sent_unknown=sent_unknown,
        sharded=sharded,
    )
