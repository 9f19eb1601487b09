"""What a batch says about the metrics of the table."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from hooktrace.exporters.aggregates import Aggregates
from hooktrace.exporters.observations import Column, Observer
from hooktrace.records import Batch, Transfer
from hooktrace.records import metrics as m
from hooktrace.records.anomalies import ANOMALIES
from hooktrace.records.hang import HANGS
from hooktrace.records.losses import LOSSES
from hooktrace.records.metrics import (
    BUCKET_COSINE,
    BUCKET_DURATION,
    BUCKET_ERROR,
    BUS_BYTES,
    BUSY,
    COMPRESSION_ERROR,
    EXPOSED,
    METRICS,
    RECORDS_LOST,
    STAGE_DURATION,
    WIRE_BUSY,
    Metric,
)
from tests.exporters.records_sample import (
    BUCKET_BYTES,
    HOOK,
    MODEL,
    WALL_ANCHOR_NS,
    full_batch,
    looked_at,
    make_batch,
    make_clock,
    make_hang,
    make_job_step,
    make_layout,
    make_run,
    make_skew,
    make_step,
    opaque,
    probed,
    sharded_batch,
)


class Seen(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]
    value: float


def flat(batch: Batch) -> list[Column]:
    return Observer("test").observe(batch)


def seen(batch: Batch) -> list[Seen]:
    """Return a batch's observations one by one, with names to read."""
    return [
        Seen(metric, own, value)
        for metric, labels, values in flat(batch)
        for own, value in zip(labels, values, strict=True)
    ]


def test_full_batch_observes_every_metric() -> None:
    """The sample batches exercise the whole table, with as many labels as the table says."""
    observations = [*seen(full_batch()), *seen(sharded_batch())]
    assert {observation.metric for observation in observations} == set(METRICS)
    for observation in observations:
        assert len(observation.labels) == len(observation.metric.labels)


def test_a_loss_that_every_batch_reports_again_is_counted_once() -> None:
    """Batches have totals so far; each observer says what came since its own last batch."""
    observer, other = Observer("test"), Observer("test")
    found = []
    for lost in (3, 3, 5):
        batch = replace(make_batch(), losses={"late": lost})
        found.append([c for c in observer.observe(batch) if c[:2] == (RECORDS_LOST, [("late",)])])
    assert [values for columns in found for _, _, values in columns] == [[3], [0], [2]]
    assert (RECORDS_LOST, [("late",)], [5]) in other.observe(batch)


def test_unsettled_steps_give_counts_but_no_timings() -> None:
    """Warm-up, shadow and incomplete steps are counted; only the two whole steps are timed."""
    observations = seen(full_batch())
    counts = Counter(observation.metric.name for observation in observations)
    sums: Counter[str] = Counter()
    for observation in observations:
        sums[observation.metric.name] += int(observation.value)
    assert sums["hooktrace_steps"] == 5
    assert sums["hooktrace_warmup_steps"] == 1
    assert sums["hooktrace_shadow_steps"] == 1
    assert sums["hooktrace_incomplete_steps"] == 1
    assert counts["hooktrace_exposed_seconds"] == 2
    assert counts["hooktrace_bucket_duration_seconds"] == 4
    assert sums["hooktrace_gradient_bytes"] == 9 * BUCKET_BYTES


def test_what_rarely_happens_is_counted_from_zero_on() -> None:
    """Before it happens: Prometheus' ``increase`` does not see the first value of a series."""
    batch = replace(make_batch(), failures={"record_file": 0, "mine": 0}, losses={"mine_rows": 2})
    found = {(o.metric, o.labels): o.value for o in seen(batch)}
    for kind in ANOMALIES.values():
        of_a_job = kind.seen != "by check_hook"  # what only the check of a hook finds
        assert found.get((m.ANOMALIES, (MODEL, HOOK, kind.name))) == (0 if of_a_job else None)
    for kind in HANGS:
        assert found[m.HANGS, (MODEL, HOOK, kind)] == 0
    assert found[m.HANG_START, (MODEL, HOOK)] == 0
    for metric in (m.WARMUP_STEPS, m.SHADOW_STEPS, m.INCOMPLETE_STEPS):
        assert found[metric, (MODEL, HOOK)] == 0
    for reason in (*LOSSES, "record_file_buckets"):
        assert found[m.RECORDS_LOST, (reason,)] == 0
    assert found[m.RECORDS_LOST, ("mine_rows",)] == 2
    assert found[m.EXPORTER_FAILURES, ("mine",)] == 0
    before = {(o.metric, o.labels): o.value for o in seen(replace(batch, steps=()))}
    for metric in (m.STEPS, m.WARMUP_STEPS, m.SHADOW_STEPS, m.INCOMPLETE_STEPS):
        assert before[metric, (MODEL, HOOK)] == 0
    for bucket in ("0", "1"):
        assert before[m.GRADIENT_BYTES, (MODEL, HOOK, bucket)] == 0


def test_bus_bytes_and_time_on_the_wire_are_of_the_same_steps() -> None:
    """One over the other is a bandwidth: where one of the two is unknown, neither counts."""
    step, buckets = make_step(1)
    unknown = replace(step, bus_bytes=None), replace(step, wire_busy_ns=None)
    batch = Batch(run=make_run(), steps=tuple((one, buckets) for one in (step, *unknown)))
    found = [(o.metric, o.value) for o in seen(batch) if o.metric in (m.BUS_BYTES, m.WIRE_BUSY)]
    assert found == [(m.BUS_BYTES, step.bus_bytes), (m.WIRE_BUSY, 0.002)]


def test_errors_are_observed_as_distribution_and_by_bucket() -> None:
    """A probed bucket gives one observation of each; an error that has no number gives none."""
    names = ("compression_error", "bucket_error", "bucket_cosine")
    wanted = {f"hooktrace_{name}_ratio" for name in names}
    found = [o for o in seen(full_batch()) if o.metric.name in wanted]
    assert [(o.labels[2:], o.value) for o in found] == [((), 0.25), (("0",), 0.25), (("0",), 0.75)]
    step, (bucket, *others) = probed(make_step(1))
    assert bucket.error is not None
    unknown = replace(
        bucket, error=replace(bucket.error, relative_l2=None, cosine=None, max_absolute=None)
    )
    batch = Batch(run=make_run(), steps=((step, (unknown, *others)),))
    assert not [o for o in seen(batch) if o.metric.name in wanted]


SENT = (
    Transfer(collective="all_gather", dtype="uint8", wire_bytes=1500),
    Transfer(collective="all_reduce", dtype="float32", wire_bytes=500),
)


def test_what_an_opaque_hook_sent_is_a_gauge_and_no_counter() -> None:
    """It is known of few steps, and a counter has to see them all; none of a warm-up."""
    step, buckets = opaque(make_step(1), sent=SENT)
    warmup = replace(step, warmup=True, wire_bytes=1)
    unknown = opaque(make_step(2), sent=None)
    batch = Batch(run=make_run(), steps=((step, buckets), (warmup, buckets), unknown))
    found = {
        (o.metric.name, *o.labels[2:]): o.value
        for o in seen(batch)
        if "wire_bytes" in o.metric.name or "compression_ratio" in o.metric.name
    }
    assert found == {
        ("hooktrace_step_wire_bytes", "all_gather", "uint8"): 1500,
        ("hooktrace_step_wire_bytes", "all_reduce", "float32"): 500,
        ("hooktrace_compression_ratio",): 4.0,
    }


def test_what_a_staged_hook_sent_is_both() -> None:
    """The counter by bucket, the gauge by collective and dtype."""
    batch = Batch(run=make_run(), steps=(make_step(1),))
    found = [
        (o.metric.name, *o.labels[2:], o.value)
        for o in seen(batch)
        if "wire_bytes" in o.metric.name
    ]
    assert found == [
        ("hooktrace_step_wire_bytes", "all_reduce", "float16", 4000),
        ("hooktrace_wire_bytes", "0", 2000),
        ("hooktrace_wire_bytes", "1", 2000),
    ]


def test_a_lag_is_observed_where_the_clocks_are_known() -> None:
    """This rank's own; of clocks the last measurement counts."""
    batch = Batch(
        run=make_run(),
        records=(
            *(make_clock(1), make_clock(-2_000_000_000, 5_000)),
            *(make_skew(rank=0), make_skew(rank=1), make_skew(uncertainty_ns=None)),
        ),
    )
    names = ("arrival_lag", "clock_offset", "clock_uncertainty")
    found = [
        (o.metric.name.removeprefix("hooktrace_"), o.value)
        for o in seen(batch)
        if any(name in o.metric.name for name in names)
    ]
    assert found == [
        ("arrival_lag_seconds", 0.003),
        ("arrival_lag_seconds", 0.0),
        ("clock_offset_seconds", -2.0),
        ("clock_uncertainty_seconds", 0.000005),
    ]


def test_a_step_of_the_job_is_gauges_of_bounded_number() -> None:
    """Twelve, however many ranks there are; who was last is -1 where the clocks cannot tell."""
    of_job = [s for s in seen(Batch(run=make_run(), records=(make_job_step(),))) if _of_job(s)]
    assert [(s.metric.name.removeprefix("hooktrace_job_"), s.value) for s in of_job] == [
        ("ranks", 2),
        ("reporting_ranks", 2),
        ("period_min_seconds", 0.01),
        ("period_mean_seconds", 0.010001),
        ("period_max_seconds", 0.010002),
        ("slowest_rank", 0),
        ("exposed_min_seconds", 0.001),
        ("exposed_mean_seconds", 0.0025),
        ("exposed_max_seconds", 0.004),
        ("arrival_lag_seconds", 0.003),
        ("arrival_uncertainty_seconds", 0.00004),
        ("last_rank", 1),
    ]
    unsure = seen(Batch(run=make_run(), records=(make_job_step(lag_ns=40_000),)))
    assert [s.value for s in unsure if s.metric is m.JOB_LAST] == [-1]


def _of_job(one: Seen) -> bool:
    return one.metric.name.startswith("hooktrace_job_")


def test_a_probed_step_gives_bytes_and_errors_but_no_timings() -> None:
    """Its times hold what hooktrace did itself; every histogram of times would have them.

    The period that it tells is that of the step before.
    """
    run = make_run()
    timed = {o.metric for o in seen(Batch(run=run, steps=(make_step(1),)))}
    found = {o.metric for o in seen(Batch(run=run, steps=(looked_at(make_step(1)),)))}
    times = {EXPOSED, BUSY, BUS_BYTES, WIRE_BUSY, BUCKET_DURATION, STAGE_DURATION}
    assert timed - found == times
    assert found - timed == {COMPRESSION_ERROR, BUCKET_ERROR, BUCKET_COSINE}


def test_a_hang_that_goes_on_has_its_beginning_until_it_is_over() -> None:
    """In seconds since 1970, as Prometheus wants moments; 0 before and after."""
    aggregates = Aggregates()
    starts, counts = [], []
    for record in (make_layout(), make_hang(7), make_hang(7, ended_after_ns=42 * 10**9)):
        aggregates.add(flat(Batch(run=make_run(), records=(record,))))
        starts.append(aggregates.family(m.HANG_START).values[MODEL, HOOK])
        counts.append(aggregates.family(m.HANGS).values[MODEL, HOOK, "busy"])
    assert starts == [0, (WALL_ANCHOR_NS + 70_000_000) / 1e9, 0]
    assert counts == [0, 1, 1]
    assert aggregates.family(m.HANGS).values[MODEL, HOOK, "died"] == 0
