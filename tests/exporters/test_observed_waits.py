"""What a rank knows of its own waiting while it trains: a lower bound, of probed buckets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.exporters.observations import Observer
from hooktrace.exporters.observed_waits import least_wait_ns
from hooktrace.records import Batch, BucketRecord, CompletedStep
from hooktrace.records import metrics as m
from tests.exporters.records_sample import HOOK, MODEL, looked_at, make_run, make_skew, make_step

MS = 1_000_000


def waiting(step: CompletedStep, *, begins_ms: int = 1, ends_ms: int = 11) -> CompletedStep:
    """Return a probed step whose first bucket is on the wire from and to ms after it was ready."""
    record, (first, *others) = looked_at(step)
    wire = next(stage for stage in first.stages if stage.name == "wire")
    wire = replace(
        wire, start_ns=first.ready_ns + begins_ms * MS, end_ns=first.ready_ns + ends_ms * MS
    )
    return record, (replace(first, stages=(wire,)), *others)


def bucket(**changes: object) -> BucketRecord:
    return replace(waiting(make_step(3))[1][0], **changes)


SKEW = make_skew(3, rank=0, arrivals_ns=(0, 8 * MS), uncertainty_ns=20_000)
"""Rank 1 had it ready 8 ms after this rank."""


def test_it_waited_at_least_until_the_last_rank_was_ready() -> None:
    """Less what came before its own wire stage, and what the clocks may be off by."""
    assert least_wait_ns(SKEW, bucket()) == 8 * MS - 1 * MS - 20_000
    late = replace(SKEW, rank=1)
    assert least_wait_ns(late, bucket()) == 0, "the last one waits for nobody that it knows of"
    close = make_skew(3, rank=0, arrivals_ns=(0, MS + 10_000), uncertainty_ns=20_000)
    assert least_wait_ns(close, bucket()) == 0
    short = waiting(make_step(3), ends_ms=4)[1][0]
    assert least_wait_ns(SKEW, short) == 3 * MS, "never more than it was on the wire"


@pytest.mark.parametrize(
    "why", ["clocks unknown", "two rounds", "no stages", "not of all ranks", "shadow", "device"]
)
def test_where_it_may_be_untrue_it_is_not_known(why: str) -> None:
    one, skew = bucket(), SKEW
    assert one.error is not None
    if why == "clocks unknown":
        skew = replace(SKEW, uncertainty_ns=None)
    elif why == "not of all ranks":
        one = replace(one, error=replace(one.error, by_design=True))
    else:
        changed = {
            "two rounds": {"stages": one.stages * 2},
            "no stages": {"stages": ()},
            "shadow": {"shadow": True},
            "device": {"device_type": "cuda"},
        }[why]
        one = replace(one, **changed)
    assert least_wait_ns(skew, one) is None


def waits_of(*batches: Batch) -> list[float]:
    observer = Observer("test")
    return [
        value
        for batch in batches
        for metric, labels, values in observer.observe(batch)
        for own, value in zip(labels, values, strict=True)
        if metric is m.STAGE_DURATION and own == (MODEL, HOOK, "wait")
    ]


def test_a_skew_waits_for_its_step_and_counts_once() -> None:
    """It may come in a batch before."""
    run, step = make_run(), waiting(make_step(3))
    first = Batch(run=run, records=(SKEW,))
    others = Batch(run=run, steps=(waiting(make_step(2)),))
    second = Batch(run=run, steps=(step,))
    again = Batch(run=run, steps=(step,))
    assert waits_of(first, others, second, again) == [pytest.approx(0.00698)]
