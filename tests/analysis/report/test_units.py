"""Sums of a sharded model's collectives, kind by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.settled import settled_steps
from hooktrace.analysis.report.units import kind_facts, payload_bytes
from hooktrace.analysis.timeline import load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import facts_of, model_of, report_of
from tests.analysis.report.sharded_jobs import MS, ShardedJob, write_sharded


def test_kinds_are_summed_in_the_order_of_a_step(tmp_path: Path) -> None:
    """Five gathers, four again, five reductions; each takes 8.2 ms, all of it exposed."""
    write_sharded(ShardedJob(), tmp_path)
    facts = facts_of(tmp_path)
    assert [(k.name, k.count, k.payload_bytes) for k in facts.kinds] == [
        ("all-gather (forward)", 5, 5 * 4_000_000),
        ("all-gather (backward)", 4, 4 * 4_000_000),
        ("reduce-scatter", 5, 5 * 12_000_000),
    ]
    assert [k.exposed_ns for k in facts.kinds] == pytest.approx(
        [5 * 8.2 * MS, 4 * 8.2 * MS, 5 * 8.2 * MS], rel=1e-3
    )
    assert facts.is_sharded
    assert facts.is_synchronous
    assert payload_bytes(facts, gathered=True) == 9 * 4_000_000
    assert payload_bytes(facts, gathered=False) == 5 * 12_000_000


def test_each_parameter_counts_once(tmp_path: Path) -> None:
    """Its unit has three collectives; the gradients are what is given to reduce-scatters."""
    write_sharded(ShardedJob(), tmp_path)
    source = report_of(tmp_path).models[0].source
    assert (source.parameters, source.elements) == (5, 5 * 3_000_000)
    assert source.gradient_bytes == 5 * 12_000_000
    assert source.is_sharded


def test_a_step_s_waits_are_summed(tmp_path: Path) -> None:
    """Two of three ranks wait 3 ms at each of ten collectives."""
    write_sharded(ShardedJob(late_ms={1: 3.0}, again=False), tmp_path)
    assert facts_of(tmp_path).wait_ns == pytest.approx(10 * 3 * MS, rel=0.02)


def test_buckets_have_no_kinds(tmp_path: Path) -> None:
    """Nor parameters that are gathered."""
    facts = model_of(SyntheticJob(ranks=2, steps=10), tmp_path)
    assert (facts.is_sharded, facts.kinds) == (False, ())
    assert not facts.is_synchronous
    arrays = settled_steps(load(find_records(tmp_path)), "synthetic")
    assert arrays is not None
    assert kind_facts(arrays) == ()
