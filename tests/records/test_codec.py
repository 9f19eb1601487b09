"""The codec alone: every record comes back, whatever the order and the names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.records import BucketRecord, ErrorRecord, RunInfo, SkewRecord, StepRecord
from hooktrace.records.base import Count, Ns
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.content import LISTS, RankRecords
from hooktrace.records.lines import Losses
from tests.exporters import records_sample as sample

from .made_up import STEPS, values
from .text import decode, encode

OF_SKEWS = {
    "rank": st.integers(0, 2),
    "ranks": st.just((0, 1, 2)),
    "arrivals_ns": st.tuples(*[values(Ns)] * 3),
}
FEW = {
    name: st.lists(values(kind, **(OF_SKEWS if kind is SkewRecord else {})), max_size=2)
    for kind, name in LISTS.items()
}
COUNTED = values(dict[str, Count])


@given(values(RunInfo), STEPS, st.fixed_dictionaries(FEW), st.tuples(COUNTED, COUNTED, COUNTED))
def test_records_come_back_equal(
    run: RunInfo,
    steps: list[tuple[StepRecord, tuple[BucketRecord, ...]]],
    few: dict[str, list[Any]],
    counts: tuple[dict[str, int], ...],
) -> None:
    """Whatever they hold and whatever the assignments before them say; each line is strict JSON."""
    data = encode(run, steps, *(record for kind in few.values() for record in kind))
    lost, left_out, removed = counts
    losses = Losses(lost=lost, left_out=left_out, removed=removed, closed=True)
    data += RecordEncoder().record(losses)

    assert decode(data) == RankRecords(
        run=run,
        steps=[step for step, _ in steps],
        buckets=[bucket for _, buckets in steps for bucket in buckets],
        **few,
        lost=counts[0],
        left_out=counts[1],
        removed=counts[2],
        closed=True,
    )
    for line in data.removesuffix(b"\n").split(b"\n"):
        assert json.loads(line, parse_constant=pytest.fail)["kind"]


def test_half_a_surrogate_pair_does_not_end_the_writing() -> None:
    """As in the name of a file that is not in UTF-8, which Python hands on in this way."""
    record = replace(sample.make_anomaly(), message="open \udcff: é")
    (found,) = decode(RecordEncoder().record(record)).anomalies
    assert found == replace(record, message="open ?: é")


def test_infinity_and_what_is_not_finite() -> None:
    """JSON has no word for them: an error that is infinite comes back, what is NaN is unknown."""
    error = ErrorRecord(
        relative_l2=float("inf"), cosine=0.0, max_absolute=2.0, flipped_share=0.0,
        reference_l2=0.0, residual_l2=float("nan"),
    )  # fmt: skip
    bucket = replace(sample.make_bucket(), error=error)
    (found,) = decode(encode(sample.make_run(), [(sample.make_step()[0], (bucket,))])).buckets
    assert found.error == replace(error, residual_l2=None)
