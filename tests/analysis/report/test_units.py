"""Sums of a sharded model's collectives, kind by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.units import kind_facts
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import facts_of, model_of, report_of
from tests.analysis.report.sharded_jobs import MS, ShardedJob, write_sharded
from tests.analysis.runs import arrays_of, run_in


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
    arrays = arrays_of(run_in(tmp_path))
    assert kind_facts(arrays) == ()
