"""What is in the ring becomes records: calls the ones of their step, other entries go with them.

    StepCalls --calls have ended, device has passed--> stage_times.py --> StepRecord, BucketRecords
    ProbeResult, DebugResult --once their device has passed, in their order--> numbers in the
                                                        records of their step, skews, anomalies
    AnomalyRecord --the first of its kind and bucket-->
    any other record --as it is-->                                           all of them --take-->

A step of DDP's comes with its first call.  One that stays incomplete (its backward pass failed, or
a call was lost) is closed before the next complete one, when the model is two steps further, or at
the end.  Runs in the drain thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from ..probes.diagnosis import Diagnosis
from ..probes.probe_result import Found, ProbeResult, anomaly_of, error_record, skew_record
from ..probes.skipped_steps import SkippedSteps
from ..records import AnomalyRecord, BucketRecord, CompletedStep, ErrorRecord, StepRecord
from ..records.anomalies import anomaly_kind
from ..records.last_used import Bounded, LastUsed
from ..records.running_median import RunningMedian
from ..records.stall import ENOUGH_STEPS, is_stall
from ..records.units import ms
from ..staging.calls import END_UNKNOWN, NOT_YET, BucketCall, StepCalls, give_back
from ..staging.slots import BucketSlot, ModelState
from .call_records import bucket_record, sent_in_step, step_record
from .stage_times import (
    CallTimes,
    QueueModel,
    collectives_of,
    device_times,
    have_passed,
    host_times,
)

if TYPE_CHECKING:
    from .drain import LossLedger

_USUAL = 64
"""Steps of a model that say what is usual."""


class StallWatch:
    """Knows what is usual of each model: exposed time and period of its last steps.

    A stall is a step that waited for its communication far longer.  One rank sees that it waited,
    not for whom: the report puts the ranks together.
    """

    def __init__(self) -> None:
        self._exposed = LastUsed[str, RunningMedian](lambda: RunningMedian(_USUAL, ENOUGH_STEPS))
        self._period = LastUsed[str, RunningMedian](lambda: RunningMedian(_USUAL, ENOUGH_STEPS - 1))

    def of_step(self, slot: BucketSlot, step: StepRecord) -> AnomalyRecord | None:
        """Return the mark of a step that stalled; ``slot``: of one of its buckets."""
        if not step.settled or step.exposed_ns is None:
            return None
        exposed, period = self._exposed.of(step.model), self._period.of(step.model)
        usual_exposed, usual_period = exposed.median, period.median
        if step.counts:
            exposed.add(step.exposed_ns)
            if step.previous_period_ns is not None:
                period.add(step.previous_period_ns)
        if usual_exposed is None or usual_period is None:
            return None
        if not is_stall(step.exposed_ns, usual_exposed, usual_period):
            return None
        checked = "; hooktrace sampled the step, which may be a part of it" if step.checked else ""
        return AnomalyRecord(
            kind="stall", model=step.model, hook=step.hook, rebuild=step.rebuild, step=step.step,
            bucket=-1, stage="exposed", time_ns=step.last_ready_ns, rank=slot.model.rank,
            message=f"hook {step.hook!r}, step {step.step}: {ms(step.exposed_ns)} of exposed "
            f"communication, where {ms(usual_exposed)} is usual{checked}; this rank waited, and "
            f"cannot tell for whom: {anomaly_kind('stall').fix}",
        )  # fmt: skip


_WARMUP_STEPS = 2
"""Rebuild 0 is left after one step, or two under ``static_graph``.  Where it is never left, it
counts from the third step on; so does a sharded model."""

_KEPT = 4096
"""Results that have not come to the host, errors whose steps have not, and anomalies that were told
already; of more, the oldest are given up."""

_WAITING_STEPS = 64
"""Steps whose backward goes on, or whose device is not there; of more, the oldest goes without."""

_OPEN_STEPS = 2
"""Steps of a model that may be under way; where one more begins, the oldest is closed."""

_MOST_OPEN = 1024
"""Steps of all models that may be under way; of more, the oldest are closed."""

_BUCKETS_TOGETHER = 64


class Assembler:
    """Turns the entries of a ring into steps and records; ``losses`` counts what cannot be."""

    def __init__(self, losses: LossLedger) -> None:
        self.losses = losses
        self._open: list[StepCalls] = []
        self._queues = QueueModel()
        self._diagnosis = Diagnosis()
        self._skipped = SkippedSteps()
        self._stalls = StallWatch()
        self._waiting: deque[StepCalls] = deque()
        self._most_waiting = _WAITING_STEPS
        self._awaited: deque[Found] = deque()
        self._previous: Bounded[str, StepRecord] = Bounded()
        self._errors: Bounded[tuple[str, int, int], ErrorRecord] = Bounded(_KEPT)
        self._anomalies_seen: Bounded[tuple[str, str, int, int], None] = Bounded(_KEPT)
        self._completed: list[CompletedStep] = []
        self._records: list[object] = []
        self._found: defaultdict[tuple[str, int], list[AnomalyRecord]] = defaultdict(list)
        """By model and step, with which they go out."""

    def add(self, entry: object) -> None:
        """Take one entry of the ring: an anomaly, what can ``assemble``, a record as it is."""
        if isinstance(entry, AnomalyRecord):
            self.add_anomaly(entry)
        elif (assemble := getattr(entry, "assemble", None)) is not None:
            assemble(self)
        else:
            self._records.append(entry)

    def take(self) -> tuple[list[CompletedStep], list[object]]:
        """Return the steps completed since the last call, and all other records, oldest first."""
        completed, self._completed = self._completed, []
        records, self._records = self._records, []
        return completed, records

    def finish(self) -> None:
        """Close every open step, complete or not; device events get no further chance."""
        opened, self._open = self._open, []
        self._close(opened)
        self._read_arrived()
        while self._awaited:
            self._give_up_oldest()
        self._most_waiting = 0

    def add_step(self, calls: StepCalls) -> None:
        """Take a step, whose calls may still be under way, and others to come."""
        if calls.is_over:
            self._close([calls])
        else:
            self._open.append(calls)

    def close_ended(self) -> None:
        """Close the steps whose calls have ended; of those that stay incomplete, the older ones."""
        newer: Counter[ModelState] = Counter()
        left: deque[StepCalls] = deque()
        closed: deque[StepCalls] = deque()
        for calls in reversed(self._open):
            model = calls[0].slot.model
            has_ended = calls.has_last and all(call.has_ended for call in calls)
            if has_ended or newer[model] >= _OPEN_STEPS or len(left) >= _MOST_OPEN:
                newer[model] = _OPEN_STEPS
                closed.appendleft(calls)
            else:
                newer[model] += 1
                left.appendleft(calls)
        self._open = list(left)
        self._close(closed)

    def _close(self, steps: Iterable[StepCalls]) -> None:
        """Have steps wait for their device, without the calls whose end is not known."""
        for calls in steps:
            try:
                known = StepCalls(calls.number)
                known.untimed = calls.untimed
                known += filter(self._is_known, calls)
                if not known:
                    continue
                complete, rebuild = calls.complete, calls.rebuild
                if not calls.is_over:
                    complete = calls.has_last and all(call.error is None for call in known)
                    rebuild = max([call.slot.rebuild for call in known])
                known.end(rebuild, complete=complete and len(known) == len(calls))
                self._waiting.append(known)
            except Exception:
                self.losses.add_defect()

    def _is_known(self, call: BucketCall) -> bool:
        """Return whether it is known when a call of a closed step has ended; count it if not."""
        has_ended = call.has_ended  # asked once: it may end just now
        if call.unknown is not None:
            self.losses.add("stamp_failed", why=call.unknown)
        elif not has_ended:
            self.losses.add("unfinished")
        if has_ended and call.done != END_UNKNOWN:
            return True
        self._tell_failed([call])
        call.before_wait = None  # the event may be that of calls that did end, too
        give_back([call])
        return False

    def _learn_queues(self, calls: StepCalls) -> None:
        """Learn of what else has held backends up until a step had ended."""
        end_ns = max([call.done for call in calls])
        for line in (self._waiting, self._open):
            begun = takewhile(lambda step: step[0].ready < end_ns, line)
            for call in chain.from_iterable(begun):
                is_known = call.has_ended and call.done != END_UNKNOWN and call.ready < end_ns
                is_timed = call.slot.unit is None and call.events is None and not call.bounded
                if is_known and is_timed:
                    with suppress(Exception):  # it is that call's step which it costs
                        self._queues.add(collectives_of(call))

    def _tell_found(self, of: tuple[str, int]) -> None:
        for anomaly in self._found.pop(of, ()):
            self.add_anomaly(anomaly)

    def _tell_failed(self, calls: Iterable[BucketCall]) -> None:
        for call in calls:
            if call.error is None:
                continue
            stage, what = call.error_stage, f"the hook raised in stage {call.error_stage}"
            if stage == "wire":
                what = "the collective raised"
            said, at = f"{what}: {call.error}", max(call.done, call.ready)
            self.add_anomaly(
                anomaly_of(
                    call.slot, "hook_exception", said, step=call.step, time_ns=at, stage=stage
                )
            )

    def add_result(self, result: Found) -> None:
        """Take what a probe or check has found; it is read once it has come to the host."""
        self._awaited.append(result)
        if len(self._awaited) > _KEPT:
            self._give_up_oldest()
        self._read_arrived()

    def _give_up_oldest(self) -> None:
        self._awaited.popleft().let_go()
        self.losses.add("device_unresolved")

    def _read_arrived(self) -> None:
        """Hand over the results that have come; one that has not holds back those after it."""
        while self._awaited and self._awaited[0].has_arrived():
            result = self._awaited.popleft()
            result.read()
            result.arrive(self)

    def add_found(self, result: Found, anomalies: Iterable[AnomalyRecord]) -> None:
        """Take what was wrong with a bucket, but in steps that a loss scaler leaves out."""
        model = result.slot.model.name
        others = self._skipped.others(
            anomalies, model=model, step=result.step, scaled=result.scaled
        )
        self._found[model, result.step] += others

    def add_numbers(self, checked: ProbeResult) -> None:
        """Take what was read of a probe."""
        slot = checked.slot
        error = error_record(checked)
        if error is not None:
            self._errors[slot.model.name, checked.step, slot.index] = error
        skew = skew_record(checked)
        if skew is not None:
            self._records.append(skew)
        self.add_found(checked, self._diagnosis.of_probe(checked))

    def add_anomaly(self, anomaly: AnomalyRecord) -> None:
        """Take an anomaly, if it is the first of its kind and bucket."""
        key = (anomaly.kind, anomaly.model, anomaly.rebuild, anomaly.bucket)
        if key not in self._anomalies_seen:
            self._anomalies_seen[key] = None
            self._records.append(anomaly)

    def complete_passed(self) -> bool:
        """Complete the steps whose backward is over, and their devices and probes past it.

        Returns whether there are as many buckets to take as one batch should have.
        """
        self._read_arrived()
        waiting, made = self._waiting, 0
        while waiting and (len(waiting) > self._most_waiting or self._is_over(waiting[0])):
            try:
                made += self._complete(waiting.popleft())
            except Exception:
                self.losses.add_defect()
            if made >= _BUCKETS_TOGETHER:
                return True
        # What is left is of steps that nobody has, or that may go on for long.
        for key in list(self._found):
            self._tell_found(key)
        for calls in self._open:
            self._tell_failed(calls)
        return False

    def _is_over(self, calls: StepCalls) -> bool:
        model, step = calls[0].slot.model, calls[0].step
        awaits = any(one.step == step and one.slot.model is model for one in self._awaited)
        in_backward = any(call.backward_end == NOT_YET for call in calls)
        return not in_backward and have_passed(calls) and not awaits

    def _complete(self, calls: StepCalls) -> int:
        """Make the records of a step; return of how many buckets."""
        self._tell_failed(calls)
        self._tell_found((calls[0].slot.model.name, calls[0].step))
        host, device = self._times(calls)
        slot, number, rebuild = calls[0].slot, calls[0].step, calls.rebuild
        model = slot.model.name
        is_first = number - slot.model.first_step < _WARMUP_STEPS
        warmup = is_first and (rebuild == 0 or slot.unit is not None)
        sent, sent_of_step, sent_unknown = sent_in_step(calls)
        errors = self._errors
        # A step is timed, or it is not: else its timed calls would be those that were fast.
        bounded = (calls.untimed and len(calls) > 1) or any(call.bounded for call in calls)
        record_of = partial(bucket_record, rebuild=rebuild, warmup=warmup, bounded=bounded)
        made: list[BucketRecord] = []
        for i, call in enumerate(calls):
            error = errors.pop((model, number, call.slot.index), None) if errors else None
            made.append(record_of(call, host[i], device[i], error=error, sent=sent[i]))
        buckets = tuple(made)
        record = step_record(
            buckets,
            self._previous.get(model),
            hidden_to=[(d or h).hidden_to for h, d in zip(host, device, strict=True)],
            done=[h.released for c, h in zip(calls, host, strict=True) if c.arrived_by is None],
            complete=calls.complete,
            sent=sent_of_step,
            sent_unknown=sent_unknown,
        )
        self._previous[model] = record
        stall = self._stalls.of_step(calls[-1].slot, record)
        if stall is not None:  # each of them is said: it names a step
            self._records.append(stall)
        self._completed.append((record, buckets))
        return len(buckets)

    def _times(self, calls: StepCalls) -> tuple[list[CallTimes], list[CallTimes | None]]:
        """Return the times of each call of a step on the host, and on its device."""
        host = [host_times(call) for call in calls]
        if calls[0].slot.unit is None:  # training waits for a unit's collectives: none is queued
            own = [
                one
                for times, call in zip(host, calls, strict=True)
                if call.events is None and not call.bounded
                for one in times.collectives
            ]
            self._learn_queues(calls)
            self._queues.derive_starts(own)
        if not any(call.events for call in calls):
            return host, [None] * len(calls)
        try:
            if not have_passed(calls):
                self.losses.add("device_unresolved", len(calls))
                return host, [None] * len(calls)
            device = device_times(calls)
        finally:
            give_back(calls)
        collectives = [one for times in device if times for one in times.collectives]
        QueueModel().derive_starts(collectives)  # no others are known there
        return host, device
