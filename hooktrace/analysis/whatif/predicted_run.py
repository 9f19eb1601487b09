"""A predicted step as record files, so that the tab can show it beside the run that was made.

    Prediction, RunInfo --write_predicted--> <logdir>/plugins/hooktrace/rank00000.jsonl

The run says ``predicted``, its hook says so too, and all its stages are derived: nothing in the
files was measured.  The step is written once for each of some steps of the run, under their
numbers, so that step N lies below step N.  One rank: the simulator's, in the middle of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from msgspec.structs import replace

from ...records import (
    BucketLayout,
    BucketRecord,
    CompletedStep,
    LayoutRecord,
    RunInfo,
    Stage,
    StageName,
    StepRecord,
)
from ...records.codec import RecordEncoder
from ...records.errors import UsageError
from ...records.files import find_records, record_path
from ...records.intervals import bus_bytes, union_ns
from ...records.lines import Losses
from .choice import Prediction
from .work import BucketWork, SimulatedStep, StepWork

MOST_STEPS = 50


def write_predicted(
    logdir: Path, run: RunInfo, one: Prediction, *, model: str, hook: str, steps: Sequence[int]
) -> None:
    """Write a prediction as a run of its own; ``steps``: numbers of the run's steps.

    Raises ``UsageError`` where record files lie already, which are never overwritten.
    """
    if find_records(logdir):
        raise UsageError(f"there is a run in {logdir} already; pass --write another directory")
    path = record_path(logdir, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for line in _lines(run, _Predicted(model, f"{hook} (predicted)", one), steps):
            file.write(line)


class _Predicted:
    """The records of one prediction."""

    def __init__(self, model: str, hook: str, one: Prediction) -> None:
        if one.work is None:
            raise ValueError("this prediction does not say what was simulated")
        self._model, self._hook = model, hook
        self._work: StepWork = one.work
        self._simulated: SimulatedStep = one.simulated
        self._rows = one.buckets
        self._gradient_bytes = sum(b.gradient_bytes for b in one.work.buckets)
        self.ranks = one.work.ranks
        self.step_ns = int(one.simulated.step_ns)

    def layout(self, step: int) -> LayoutRecord:
        """Return which parameters share a bucket."""
        known = self._work.compute.parameters
        buckets = tuple(
            BucketLayout(
                bucket=i, dtype=self._dtype(i), device_type="cpu", numel=self._numel(i),
                gradient_bytes=work.gradient_bytes,
                parameters=tuple((known[row].name, known[row].shape) for row in self._of(i)),
            )
            for i, work in enumerate(self._work.buckets)
        )  # fmt: skip
        return LayoutRecord(
            model=self._model, hook=self._hook, generation=1, step=step, time_ns=0, buckets=buckets
        )

    def completed(self, step: int, start_ns: int, *, is_first: bool) -> CompletedStep:
        """Return the step, which begins at ``start_ns``, and its buckets."""
        buckets = tuple(
            self._bucket(step, i, work, start_ns) for i, work in enumerate(self._work.buckets)
        )
        wires = [s for b in buckets for s in b.stages if s.name == "wire"]
        record = StepRecord(
            model=self._model, hook=self._hook, generation=1, step=step, clock="host",
            first_ready_ns=buckets[0].ready_ns, last_ready_ns=buckets[-1].ready_ns,
            done_ns=max(b.done_ns for b in buckets),
            busy_ns=union_ns((b.ready_ns, b.done_ns) for b in buckets),
            exposed_ns=int(self._simulated.exposed_ns),
            wire_busy_ns=union_ns((s.start_ns, s.end_ns) for s in wires),
            previous_period_ns=None if is_first else self.step_ns,
            gradient_bytes=self._gradient_bytes, wire_bytes=sum(b.wire_bytes or 0 for b in buckets),
            bus_bytes=_total([b.bus_bytes for b in buckets]), bucket_count=len(buckets),
        )  # fmt: skip
        return record, buckets

    def _bucket(self, step: int, index: int, work: BucketWork, start_ns: int) -> BucketRecord:
        s = self._simulated
        ready, launched, done = (
            start_ns + int(times[index]) for times in (s.ready_ns, s.launched_ns, s.done_ns)
        )
        return BucketRecord(
            model=self._model, hook=self._hook, generation=1, step=step, bucket=index,
            is_last=index == len(self._work.buckets) - 1, dtype=self._dtype(index),
            device_type="cpu", numel=self._numel(index), gradient_bytes=work.gradient_bytes,
            parameter_count=len(self._of(index)), ready_ns=ready, launched_ns=launched,
            done_ns=done, stages=self._stages(index, work, start_ns, ready, done),
            wire_bytes=int(sum(one.wire_bytes for one in work.rounds)),
            bus_bytes=_total([
                bus_bytes(one.collective, int(one.wire_bytes), self.ranks) for one in work.rounds
            ]),
        )  # fmt: skip

    def _stages(
        self, index: int, work: BucketWork, start_ns: int, ready: int, done: int
    ) -> tuple[Stage, ...]:
        s, at = self._simulated, ready
        stages: list[Stage] = []
        rounds = (s.round_bucket == index).nonzero()[0].tolist()
        for row, one in zip(rounds, work.rounds, strict=True):
            issued, began, came = (
                start_ns + int(times[row]) for times in (s.issued_ns, s.started_ns, s.arrived_ns)
            )
            turn = issued - int(one.before_ns)
            if self._work.serial and not stages and turn > at:
                stages.append(_stage("turn", at, turn))
                at = turn
            stages.append(_stage("compress", at, issued))
            if began > issued:
                stages.append(_stage("queue", issued, began))
            stages.append(
                Stage(name="wire", start_ns=began, end_ns=came, derived=True,
                      collective=one.collective, wire_bytes=int(one.wire_bytes))
            )  # fmt: skip
            at = came
        stages.append(_stage("decompress" if rounds else "compress", at, done))
        return tuple(stages)

    def _of(self, index: int) -> tuple[int, ...]:
        return self._rows[index] if self._rows else ()

    def _dtype(self, index: int) -> str:
        parameters = self._work.compute.parameters
        return parameters[self._work.buckets[index].last_parameter].dtype

    def _numel(self, index: int) -> int:
        last = self._work.compute.parameters[self._work.buckets[index].last_parameter]
        return self._work.buckets[index].gradient_bytes * prod(last.shape) // max(1, last.nbytes)


def _stage(name: StageName, start_ns: int, end_ns: int) -> Stage:
    return Stage(name=name, start_ns=start_ns, end_ns=max(start_ns, end_ns), derived=True)


def _total(known: Sequence[float | None]) -> float | None:
    return None if any(one is None for one in known) else sum(one or 0.0 for one in known)


def _lines(run: RunInfo, predicted: _Predicted, steps: Sequence[int]) -> Iterator[bytes]:
    encoder = RecordEncoder()
    yield encoder.record(
        replace(
            run, run_id=f"{run.run_id}-predicted", rank=0, local_rank=0,
            world_size=predicted.ranks, host="predicted", pid=0, predicted=True,
        )
    )  # fmt: skip
    numbers = steps[-MOST_STEPS:]
    yield encoder.record(predicted.layout(numbers[0]))
    for i, number in enumerate(numbers):
        step, buckets = predicted.completed(number, i * predicted.step_ns, is_first=not i)
        yield encoder.buckets(buckets)
        yield encoder.record(step)
    yield encoder.record(Losses(closed=True))
