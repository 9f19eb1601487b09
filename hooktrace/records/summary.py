"""Percentiles of kept records: pure functions, for ``tracer.summary()`` and the command line.

Warm-up, join() dummy and incomplete steps are left out, and checked ones give no times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .bucket import STAGES, BucketRecord, ClockKind, Unit
from .step import StepRecord
from .units import megabytes, milliseconds, ms, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSummary:
    """One bucket over all counted steps of its rebuild; times in ns.

    ``stage_p50_ns`` has one entry for each stage that occurred, in the order in which they begin.
    Times are ``None``, and stages missing, where no call's device events resolved.
    ``wire_bytes``: of the last call of which it is known.  ``error_p50`` is the median relative L2
    error of ``error_count`` checked calls.  ``unit``: of a sharded model, which collective of it,
    and ``exposed_p50_ns`` how long training waited for that; ``str()`` says it where that is not
    all of the call.
    """

    bucket: int
    is_last: bool
    count: int
    gradient_bytes: int
    wire_bytes: int | None
    duration_p50_ns: int | None
    duration_p95_ns: int | None
    stage_p50_ns: dict[str, int]
    busbw_p50_bytes_per_second: float | None
    error_p50: float | None
    error_count: int
    unit: Unit | None = None
    exposed_p50_ns: int | None = None

    def __str__(self) -> str:
        name = f"bucket {self.bucket}" if self.unit is None else f"unit {self.unit}"
        wire = "?" if self.wire_bytes is None else megabytes(self.wire_bytes)
        is_all = self.exposed_p50_ns in (None, self.duration_p50_ns)
        stages = ", ".join(f"{name} {milliseconds(ns)}" for name, ns in self.stage_p50_ns.items())
        return (
            f"{name}: {megabytes(self.gradient_bytes)} MB, {wire} on the wire, "
            f"{ms(self.duration_p50_ns)}: {stages}"
            + ("" if is_all else f"; {ms(self.exposed_p50_ns)} exposed")
            + ("" if self.error_p50 is None else f"; error {self.error_p50:.2g}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """One model's last rebuild, if sharded all; times in ns, ``None`` of nothing measured.

    ``str()`` gives a few lines to read: medians in ms, sizes in MB.
    """

    model: str
    hook: str
    rebuild: int
    clock: ClockKind
    steps: int
    period_p50_ns: int | None
    exposed_p50_ns: int | None
    exposed_p95_ns: int | None
    overlap_p50: float | None
    busbw_p50_bytes_per_second: float | None
    gradient_bytes: int
    wire_bytes: int | None
    buckets: tuple[BucketSummary, ...]

    def __str__(self) -> str:
        lines = [f"  {bucket}" for bucket in self.buckets]
        for i, bucket in enumerate(self.buckets):
            if bucket.unit is not None and bucket.count < self.steps:
                lines[i] += f"; in {bucket.count} of the steps"
        return "\n".join([self.headline, *lines])

    @property
    def headline(self) -> str:
        """The first line: hook, number of steps, how long they are, and what of that is exposed."""
        head = f"{self.model}: {self.hook}, medians of {self.steps} steps"
        if self.period_p50_ns is not None:
            head += f" of {ms(self.period_p50_ns)}"
        if self.exposed_p50_ns is not None:
            share = self.exposed_share
            of_step = "" if share is None else f" ({percent(share)})"
            head += f", {ms(self.exposed_p50_ns)}{of_step} exposed"
        return head

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the step period, both medians."""
        if self.exposed_p50_ns is None or not self.period_p50_ns:
            return None
        return self.exposed_p50_ns / self.period_p50_ns


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of unsorted ``values``; ``share`` is in [0, 1].

    Between two values it is interpolated, as the report's are: both show the same run.  Raises
    ``ValueError`` when there are no values.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    below, part = divmod(share * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + part * (high - low)


def summarize(
    completed: Iterable[tuple[StepRecord, tuple[BucketRecord, ...]]],
) -> list[ModelSummary]:
    """Return a summary of each model, in order of first appearance."""
    by_model: dict[str, list[tuple[StepRecord, tuple[BucketRecord, ...]]]] = {}
    for step, buckets in completed:
        if step.settled:
            by_model.setdefault(step.model, []).append((step, buckets))
    found = [_summarize_model(entries) for entries in by_model.values()]
    return [summary for summary in found if summary is not None]


def _summarize_model(
    entries: list[tuple[StepRecord, tuple[BucketRecord, ...]]],
) -> ModelSummary | None:
    last = entries[-1][0]
    if not last.sharded:  # of which numbers stay what they are
        entries = [e for e in entries if e[0].rebuild == last.rebuild]
    steps = [s for s, _ in entries if s.counts]
    if not steps:
        return None
    timed: dict[int, list[BucketRecord]] = {}
    every: dict[int, list[BucketRecord]] = {}
    for step, buckets in entries:
        for bucket in buckets:
            every.setdefault(bucket.bucket, []).append(bucket)
            if step.counts:
                timed.setdefault(bucket.bucket, []).append(bucket)
    exposed = [s.exposed_ns for s in steps if s.exposed_ns is not None]
    return ModelSummary(
        model=last.model,
        hook=last.hook,
        rebuild=last.rebuild,
        clock=last.clock,
        steps=len(steps),
        period_p50_ns=_p(0.5, [p for s in steps if (p := s.previous_period_ns) is not None]),
        exposed_p50_ns=_p(0.5, exposed),
        exposed_p95_ns=_p(0.95, exposed),
        overlap_p50=_median([s.overlap_ratio for s in steps]),
        busbw_p50_bytes_per_second=_median([s.busbw_bytes_per_second for s in steps]),
        gradient_bytes=last.gradient_bytes,
        wire_bytes=_last_known(s.wire_bytes for s, _ in entries),
        buckets=tuple(_summarize_bucket(timed[index], every[index]) for index in sorted(timed)),
    )


def _summarize_bucket(records: list[BucketRecord], every: list[BucketRecord]) -> BucketSummary:
    """Return a summary; ``records``: whose times count, ``every``: whose bytes and errors do."""
    last = records[-1]
    known = [r for r in records if r.duration_ns is not None]
    durations = [r.duration_ns for r in known if r.duration_ns is not None]
    spent = [r.stage_totals_ns() for r in known]
    errors = [r.error.relative_l2 for r in every if r.error is not None]
    return BucketSummary(
        bucket=last.bucket,
        is_last=last.is_last,
        count=len(records),
        gradient_bytes=last.gradient_bytes,
        wire_bytes=_last_known(r.wire_bytes for r in every),
        duration_p50_ns=_p(0.5, durations),
        duration_p95_ns=_p(0.95, durations),
        stage_p50_ns={
            name: round(percentile([one.get(name, 0) for one in spent], 0.5))
            for name in STAGES
            if any(name in one for one in spent)
        },
        busbw_p50_bytes_per_second=_median([r.busbw_bytes_per_second for r in records]),
        error_p50=_median(errors),
        error_count=len(errors),
        unit=last.unit,
        exposed_p50_ns=_p(0.5, [r.exposed_ns for r in records if r.exposed_ns is not None]),
    )


def _last_known(values: Iterable[int | None]) -> int | None:
    return next((v for v in reversed(list(values)) if v is not None), None)


def _p(share: float, values: Sequence[int]) -> int | None:
    return round(percentile(values, share)) if values else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return percentile(known, 0.5) if known else None
