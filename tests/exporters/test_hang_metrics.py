"""Hangs in numbers: from 0 on, counted once, and since when one goes on."""

from __future__ import annotations

from hooktrace.exporters.aggregates import Aggregates
from hooktrace.exporters.model_labels import ModelLabels
from hooktrace.exporters.observations import observe
from hooktrace.records import Batch
from hooktrace.records import metrics as m
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    WALL_ANCHOR_NS,
    make_hang,
    make_layout,
    make_run,
)


def test_a_hang_that_goes_on_has_its_beginning_until_it_is_over() -> None:
    """In seconds since 1970, as Prometheus wants moments; 0 before and after."""
    aggregates, models = Aggregates(), ModelLabels("test")
    starts, counts = [], []
    for record in (make_layout(), make_hang(7), make_hang(7, ended_after_ns=42 * 10**9)):
        batch = Batch(run=make_run(), records=(record,))
        aggregates.add(models.fold(observe(batch)))
        starts.append(aggregates.family(m.HANG_START).values[MODEL, HOOK])
        counts.append(aggregates.family(m.HANGS).values[MODEL, HOOK, "busy"])
    assert starts == [0, (WALL_ANCHOR_NS + 70_000_000) / 1e9, 0]
    assert counts == [0, 1, 1]
    assert aggregates.family(m.HANGS).values[MODEL, HOOK, "died"] == 0
