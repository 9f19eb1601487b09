"""From stamps to records: calls are gathered into steps, and stages get their derived times.

    BucketCall --add--> pending steps --last bucket there--> StepRecord + BucketRecords --take-->
                 +-> QueueModel of the call's group: when did each collective really start?
    ProbeResult, WireSample --> the records of their step, and anomalies, each kind once a bucket

Runs in the drain thread only.  A step is complete when its last bucket and all before it are
there.  A step that stays incomplete (its backward pass failed, or a record was lost) is closed
before the next complete one, when the model is two steps further, or at the end.  Steps on a device
wait here, a bounded number of them, until the device has passed their events.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..capture.calls import BucketCall
from ..capture.clocks import EventPool
from ..probes import (
    CallWindow,
    Diagnosis,
    FlightRecorder,
    ProbeResult,
    WireSample,
    attribute,
    error_record,
    skew_record,
)
from ..records import AnomalyRecord, CompletedStep, ErrorRecord, SkewRecord, StepRecord
from ..records.intervals import fifo_starts
from .call_records import Sent, bucket_record, hook_exception, step_record
from .stage_times import Times, host_times, launched, times_of

__all__ = ["Assembler"]

_WARMUP_STEPS = 2
"""Generation 0 is left after one step, or two under ``static_graph``.  Where it is never left
(``find_unused_parameters``, a hook without rebuilds), it counts from the third step on."""

_OPEN_STEPS = 2
_QUEUE_MEMORY = 512
_UNRESOLVED_STEPS = 64
_WAITING = 4096
"""Outcomes and samples whose steps have not come; more are of steps that were lost."""


class QueueModel:
    """Start times on one process group's backend, over the collectives of all models that use it.

    Remembers the last ``_QUEUE_MEMORY`` collectives, each with its issue and arrival in ns.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._seen: deque[tuple[int, int]] = deque(maxlen=_QUEUE_MEMORY)

    def note(self, issued: int, arrived: int) -> None:
        """Learn of a collective; before ``starts`` is asked for any that it may have held up."""
        self._seen.append((issued, arrived))

    def starts(self, rounds: Sequence[tuple[int, int]]) -> list[int]:
        """Return the start of each noted collective in ``rounds``."""
        first = min(issued for issued, _ in rounds)
        relevant = sorted({(i, a) for i, a in self._seen if a > first} | set(rounds))
        by_round = dict(
            zip(
                relevant,
                fifo_starts([i for i, _ in relevant], [a for _, a in relevant], self._workers),
                strict=True,
            )
        )
        return [by_round[r] for r in rounds]


class _ModelSteps:
    """The open steps of one model."""

    def __init__(self) -> None:
        self.pending: dict[int, list[BucketCall]] = {}
        self.closed_to = -1
        self.previous: StepRecord | None = None


class Assembler:
    """Turns calls into completed steps; ``lost`` counts what could not be turned, by reason."""

    def __init__(
        self, pool: EventPool | None = None, recorder: FlightRecorder | None = None
    ) -> None:
        self._pool = pool
        self._recorder = recorder or FlightRecorder()
        self._diagnosis = Diagnosis()
        self._models: dict[str, _ModelSteps] = {}
        self._queues: dict[int, QueueModel] = {}
        self._completed: list[CompletedStep] = []
        self._unresolved: deque[tuple[_ModelSteps, list[BucketCall], bool]] = deque()
        self.anomalies: list[AnomalyRecord] = []
        self.skews: list[SkewRecord] = []
        self.lost: Counter[str] = Counter()
        self._errors: dict[tuple[str, int, int], ErrorRecord] = {}
        self._samples: dict[tuple[str, int], WireSample] = {}
        self._reported: set[tuple[str, str, int, int]] = set()

    def add_outcome(self, outcome: ProbeResult) -> None:
        """Take a probe's outcome; its call comes next."""
        slot = outcome.slot
        error = error_record(outcome)
        if error is not None:
            self._errors[slot.model.name, outcome.step, slot.index] = error
            _forget_the_oldest(self._errors)
        skew = skew_record(outcome)
        if skew is not None:
            self.skews.append(skew)
        for anomaly in self._diagnosis.of_probe(outcome):
            self.report(anomaly)

    def add_sample(self, sample: WireSample) -> None:
        """Take note of a step whose collectives are to be looked up; its calls come later."""
        self._samples[sample.model, sample.step] = sample
        _forget_the_oldest(self._samples)

    def report(self, anomaly: AnomalyRecord) -> None:
        """Take an anomaly, if it is the first of its kind and bucket."""
        key = (anomaly.kind, anomaly.model, anomaly.generation, anomaly.bucket)
        if key not in self._reported:
            self._reported.add(key)
            self.anomalies.append(anomaly)

    def add(self, call: BucketCall) -> None:
        """Take one ended call."""
        model = call.slot.model
        steps = self._models.setdefault(model.name, _ModelSteps())
        if call.error is not None:
            self.report(hook_exception(call))
        if call.events is None:
            self._note_rounds(call)
        if call.step <= steps.closed_to:
            self.lost["late"] += 1
            return
        calls = steps.pending.setdefault(call.step, [])
        calls.append(call)
        complete = _is_complete(calls)
        # DDP ends a backward pass before the next one begins: once a step is complete, nothing
        # more can come for those before it.
        last_open = call.step - 1 if complete else call.step - _OPEN_STEPS
        for step in sorted(s for s in steps.pending if s <= last_open):
            self._close(steps, step, complete=False)
        if complete:
            self._close(steps, call.step, complete=True)

    def take(self) -> list[CompletedStep]:
        """Return the steps that were completed since the last call, oldest first."""
        while self._unresolved and _all_passed(self._unresolved[0][1]):
            self._emit(*self._unresolved.popleft())
        completed, self._completed = self._completed, []
        return completed

    def finish(self) -> None:
        """Close every open step, complete or not; device events get no further chance."""
        for steps in self._models.values():
            for step in sorted(steps.pending):
                calls = steps.pending.pop(step)
                self._hand_on(steps, calls, complete=False)
        while self._unresolved:
            self._emit(*self._unresolved.popleft())

    def _close(self, steps: _ModelSteps, step: int, *, complete: bool) -> None:
        steps.closed_to = max(steps.closed_to, step)
        self._hand_on(steps, steps.pending.pop(step), complete=complete)

    def _hand_on(self, steps: _ModelSteps, calls: list[BucketCall], *, complete: bool) -> None:
        calls.sort(key=lambda c: c.slot.index)
        if all(c.events is None for c in calls):
            self._emit(steps, calls, complete)
            return
        self._unresolved.append((steps, calls, complete))
        if len(self._unresolved) > _UNRESOLVED_STEPS:
            self._emit(*self._unresolved.popleft())

    def _note_rounds(self, call: BucketCall) -> None:
        times = host_times(call)
        for (_, _, _, _, key, workers), (issued, arrived) in zip(
            call.rounds, times.rounds, strict=True
        ):
            if workers:
                self._queues.setdefault(key, QueueModel(workers)).note(issued, arrived)

    def _emit(self, steps: _ModelSteps, calls: list[BucketCall], complete: bool) -> None:
        host = [host_times(c) for c in calls]
        self._derive_starts(
            calls, host, lambda key, workers, r: self._queues[key].starts(r), on_device=False
        )
        device = self._device_times(calls)
        if device is not None:
            self._derive_starts(calls, device, _starts_on_device, on_device=True)
        generation = max(c.slot.generation for c in calls)
        warmup = generation == 0 and calls[0].step < _WARMUP_STEPS
        sent, step_sent = self._look_up(calls)
        buckets = tuple(
            bucket_record(
                call,
                host[i],
                None if device is None or call.events is None else device[i],
                generation=generation,
                warmup=warmup,
                error=self._errors.pop((call.slot.model.name, call.step, call.slot.index), None),
                sent=sent[i],
            )
            for i, call in enumerate(calls)
        )
        step = step_record(buckets, steps.previous, complete=complete, sent=step_sent)
        steps.previous = step
        self._completed.append((step, buckets))
        for call, bucket in zip(calls, buckets, strict=True):
            for anomaly in self._diagnosis.of_bucket(call.slot, bucket):
                self.report(anomaly)

    def _look_up(self, calls: list[BucketCall]) -> tuple[Sequence[Sent], Sent]:
        """Return what each call of an opaque hook sent, and all of them, where it is known."""
        unknown = [None] * len(calls)
        sample = self._samples.pop((calls[0].slot.model.name, calls[0].step), None)
        if sample is None or all(call.staged for call in calls):
            return unknown, None
        windows = [CallWindow(c.ready, launched(c), c.done) for c in calls]
        to_wall = sample.wall_ns - sample.host_ns
        issued = self._recorder.issued(
            min(w.ready for w in windows) + to_wall, max(w.done for w in windows) + to_wall
        )
        return (unknown, None) if issued is None else attribute(issued, windows, sample)

    def _derive_starts(
        self,
        calls: list[BucketCall],
        times: list[Times],
        starts: Callable[[int, int, list[tuple[int, int]]], list[int]],
        *,
        on_device: bool,
    ) -> None:
        by_group: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, call in enumerate(calls):
            times[i].starts = [None] * len(call.rounds)
            for j, (_, _, _, _, key, workers) in enumerate(call.rounds):
                if workers and (call.events is not None) == on_device:
                    by_group.setdefault((key, workers), []).append((i, j))
        for (key, workers), places in by_group.items():
            rounds = [times[i].rounds[j] for i, j in places]
            for (i, j), start in zip(places, starts(key, workers, rounds), strict=True):
                times[i].starts[j] = start

    def _device_times(self, calls: list[BucketCall]) -> list[Times] | None:
        """Return the calls' device times and give their events back; ``None`` if not passed."""
        if all(c.events is None for c in calls):
            return None
        if not _all_passed(calls):
            # The events go with the calls: they cannot be used again before the device is there.
            self.lost["device_unresolved"] += len(calls)
            return None
        origin = next(c.events for c in calls if c.events)[0]
        times = []
        for call in calls:
            at = [round(origin.elapsed_time(e) * 1e6) for e in call.events or []]
            times.append(times_of(at) if at else host_times(call))
        for call in calls:
            for event in call.events or []:
                if self._pool is not None:
                    self._pool.give(event)
        return times


def _forget_the_oldest(waiting: dict[Any, Any]) -> None:
    while len(waiting) > _WAITING:
        waiting.pop(next(iter(waiting)))


def _is_complete(calls: list[BucketCall]) -> bool:
    last = next((c.slot for c in calls if c.slot.is_last), None)
    return last is not None and len(calls) == last.index + 1


def _all_passed(calls: Iterable[BucketCall]) -> bool:
    return all(e.query() for c in calls for e in c.events or [])


def _starts_on_device(key: int, workers: int, rounds: list[tuple[int, int]]) -> list[int]:
    del key
    order = sorted(range(len(rounds)), key=lambda i: rounds[i])
    launches, dones = [rounds[i][0] for i in order], [rounds[i][1] for i in order]
    starts = fifo_starts(launches, dones, workers)
    return [starts[order.index(i)] for i in range(len(rounds))]
