"""The codec alone: every record comes back, with every field that is declared."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from msgspec import inspect
from msgspec.structs import replace

from hooktrace.records import (
    SCHEMA_VERSION,
    BucketRecord,
    ErrorRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
)
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.content import LISTS, RankRecords
from hooktrace.records.lines import Losses
from tests.exporters import records_sample as sample

from .text import decode, encode

_numbers = count(1)
_OWN: dict[type, dict[str, Any]] = {
    RunInfo: {"schema": SCHEMA_VERSION},
    SkewRecord: {"rank": 4, "ranks": (4, 6), "arrivals_ns": (0, 7)},
}


def filled(info: Any) -> Any:
    """Return a value of a declared type that is no field's default; in it no two are the same."""
    number = next(_numbers)
    found: Any = True
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            found = cls(**{f.name: filled(f.type) for f in fields} | _OWN.get(cls, {}))
        case inspect.UnionType(types=types):
            found = filled(next(one for one in types if not isinstance(one, inspect.NoneType)))
        case inspect.VarTupleType(item_type=item):
            found = filled(item), filled(item)
        case inspect.TupleType(item_types=items):
            found = tuple(map(filled, items))
        case inspect.DictType(value_type=value):
            found = {f'"</script>{number}': filled(value)}
        case inspect.LiteralType(values=known):
            found = known[number % len(known)]
        case inspect.IntType():
            found = number
        case inspect.FloatType():
            found = number / 8
        case inspect.StrType():
            found = f"a\n\u2028\\{number}"
    return found


def of(kind: type) -> Any:
    return filled(inspect.type_info(kind))


def test_records_come_back_equal() -> None:
    """Whatever fields they have; each line is strict JSON."""
    steps = [(of(StepRecord), (of(BucketRecord), of(BucketRecord))) for _ in range(3)]
    run = of(RunInfo)
    few = {name: [of(kind), of(kind)] for kind, name in LISTS.items()}
    losses = Losses(lost={"a": 1}, left_out={"b": 2}, removed={"c": 3}, closed=True)
    data = encode(run, steps, *(record for kind in few.values() for record in kind))
    data += RecordEncoder().record(losses)
    assert decode(data) == RankRecords(
        run=run,
        steps=[step for step, _ in steps],
        buckets=[bucket for _, buckets in steps for bucket in buckets],
        **few,
        lost=losses.lost,
        left_out=losses.left_out,
        removed=losses.removed,
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
