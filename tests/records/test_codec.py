"""The codec alone: every record comes back, whatever the order and the names."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.records import STAGES as STAGE_NAMES
from hooktrace.records import (
    AnomalyRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    DeviceSpan,
    ErrorRecord,
    HangRecord,
    LayoutRecord,
    Parameter,
    ParameterError,
    RankStacks,
    RunInfo,
    SkewRecord,
    Stage,
    StepRecord,
    Transfer,
    Unit,
)
from hooktrace.records.bucket import UnitCollective
from hooktrace.records.codec import RecordEncoder, decode_line
from hooktrace.records.content import RankRecords
from hooktrace.records.lines import BucketLine, Losses
from hooktrace.records.step import KeptFor
from tests.exporters import records_sample as sample

from .text import decode, encode

NS = st.integers(min_value=-(2**61), max_value=2**61)
COUNTS = st.integers(min_value=0, max_value=2**53)
RANK = st.integers(min_value=0, max_value=2**20 - 1)
TIMES = st.integers(min_value=0, max_value=2**50)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2**53).map(float)
TEXTS = st.text() | st.sampled_from(['"</script>', "a\nb\u2028", "\\", ""])
NAMES = st.sampled_from(["net", "other"])
STAGE = st.builds(
    Stage,
    name=st.sampled_from(STAGE_NAMES),
    start_ns=TIMES,
    end_ns=TIMES,
    derived=st.booleans(),
    collective=st.none() | TEXTS,
    wire_bytes=st.none() | COUNTS,
    dtype=st.none() | TEXTS,
)
STAGES = st.lists(STAGE, max_size=3).map(tuple)
SPAN = st.builds(DeviceSpan, ready_ns=TIMES, done_ns=TIMES, stages=STAGES)


def records(cls: type, **given_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for ``cls`` that fills every field by its annotation."""
    kinds = {"str": TEXTS, "Count": COUNTS, "Ns": NS, "bool": st.booleans(), "float": FLOATS}
    kinds |= {"Step": st.integers(-1, 2**32 - 1), "BucketIndex": st.integers(0, 2**20 - 1)}
    kinds |= {"AnyBucket": st.integers(-1, 2**20 - 1), "BusBytes": st.floats(0, 2**60)}
    kinds |= {"Rank": RANK, "RankCount": st.integers(1, 2**20), "WallNs": st.integers(0, 2**62 - 1)}
    kinds["ClockKind"] = st.sampled_from(["host", "device"])
    kinds["KeptFor"] = st.sampled_from(get_args(KeptFor))
    kinds["Scope"] = st.sampled_from(["global", "local"])
    transfer = st.builds(Transfer, collective=TEXTS, dtype=TEXTS, wire_bytes=COUNTS)
    kinds["tuple[Transfer, ...]"] = st.lists(transfer, max_size=2).map(tuple)
    kinds["Unit"] = st.builds(
        Unit,
        name=TEXTS,
        collective=st.sampled_from(get_args(UnitCollective)),
        phase=st.sampled_from(["forward", "backward"]),
        turn=COUNTS,
    )
    kinds["Members"] = st.tuples(RANK, kinds["RankCount"], st.integers(1, 2**20 - 1))
    values = st.booleans() | st.integers(-(2**60), 2**60) | FLOATS | TEXTS
    kinds["tuple[str, ...]"] = st.lists(TEXTS, max_size=2).map(tuple)
    kinds["tuple[Ns, ...]"] = st.lists(NS, max_size=2).map(tuple)
    kinds["Options"] = st.lists(st.tuples(TEXTS, values), max_size=2).map(tuple)
    kinds |= {f"{name} | None": st.none() | kind for name, kind in kinds.items()}
    annotated: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        annotated |= getattr(base, "__annotations__", {})
    names = [name for name in cls.__struct_fields__ if name not in given_fields]  # type: ignore[attr-defined]
    return st.builds(cls, **{name: kinds[annotated[name]] for name in names}, **given_fields)


PARAMETER_ERROR = records(ParameterError)
BUCKET = records(
    BucketRecord,
    model=NAMES,
    generation=st.integers(0, 2),
    error=st.none() | records(ErrorRecord, worst=st.lists(PARAMETER_ERROR, max_size=2).map(tuple)),
    bucket=st.integers(0, 3),
    ready_ns=TIMES,
    launched_ns=TIMES,
    done_ns=TIMES,
    stages=STAGES,
    device=st.none() | SPAN,
)
STEP = records(StepRecord, first_ready_ns=TIMES, last_ready_ns=TIMES, done_ns=TIMES)
SHAPE = st.lists(st.integers(0, 9), max_size=3).map(tuple)
ENTRY = records(
    BucketLayout,
    bucket=st.integers(0, 3),
    parameters=st.lists(st.builds(Parameter, TEXTS, SHAPE), max_size=2).map(tuple),
)
LAYOUT = records(
    LayoutRecord,
    model=NAMES,
    generation=st.integers(0, 2),
    buckets=st.lists(ENTRY, max_size=2).map(tuple),
)
RUN = records(
    RunInfo,
    rank=st.integers(0, 99_999),
    wall_anchor_ns=st.integers(2**60, 2**62 - 1),
)
ARRIVALS = st.lists(NS, min_size=3, max_size=3).map(tuple)
SKEW = records(SkewRecord, rank=st.integers(0, 2), ranks=st.just((0, 1, 2)), arrivals_ns=ARRIVALS)
RANKS = st.lists(st.integers(0, 99_999), max_size=3).map(tuple)
STACKS = records(RankStacks)
HANG = records(
    HangRecord,
    ranks=RANKS,
    waiting=RANKS,
    stacks=st.lists(STACKS, max_size=2).map(tuple),
)
STEPS = st.lists(st.tuples(STEP, st.lists(BUCKET, max_size=3).map(tuple)), max_size=3)
FEW = {
    "layouts": st.lists(LAYOUT, max_size=2),
    "anomalies": st.lists(records(AnomalyRecord), max_size=2),
    "clocks": st.lists(records(ClockRecord), max_size=2),
    "skews": st.lists(SKEW, max_size=2),
    "hangs": st.lists(HANG, max_size=2),
}
COUNTED = st.dictionaries(TEXTS, COUNTS, max_size=2)


@given(RUN, STEPS, st.fixed_dictionaries(FEW), st.tuples(COUNTED, COUNTED, COUNTED))
def test_records_come_back_equal(
    run: RunInfo,
    steps: list[tuple[StepRecord, tuple[BucketRecord, ...]]],
    few: dict[str, list[Any]],
    counts: tuple[dict[str, int], ...],
) -> None:
    """Whatever they hold and whatever the layouts before them say; each line is strict JSON."""
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


def test_buckets_may_come_after_the_layout_of_the_next_generation() -> None:
    """DDP may rebuild them before the drain has handled the first step; nothing is said twice."""
    layout = sample.make_layout()
    _, buckets = sample.make_step()
    encoder = RecordEncoder()
    later = replace(layout, generation=layout.generation + 1)
    encoder.record(layout)
    encoder.record(later)
    lines = [decode_line(line) for line in encoder.buckets(buckets).splitlines()]
    assert [line.hook for line in lines if isinstance(line, BucketLine)] == [None] * len(buckets)


def test_buckets_outlive_their_layout() -> None:
    """A damaged layout takes no bucket with it: its sizes are unknown, its times are there."""
    step, buckets = sample.make_step()
    data = encode(sample.make_run(), [(step, buckets)], sample.make_layout())
    found = decode(data.replace(b'"kind":"layout"', b'"kind":"lay\x00ut"'))
    assert [line for line, _ in found.skipped] == [2]
    unknown = {"hook": "unknown", "dtype": "unknown", "is_last": False}
    unknown |= dict.fromkeys(("numel", "gradient_bytes", "parameter_count"), 0)
    assert found.buckets == [replace(b, **unknown) for b in buckets]


def test_half_a_surrogate_pair_does_not_end_the_writing() -> None:
    """As in the name of a file that is not in UTF-8, which Python hands on in this way."""
    record = replace(sample.make_anomaly(), message="open \udcff: é")
    (found,) = decode(RecordEncoder().record(record)).anomalies
    assert found == replace(record, message="open ?: é")
