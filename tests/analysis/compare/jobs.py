"""Jobs of which one knows in what they differ, and their comparisons."""

from __future__ import annotations

from dataclasses import replace as like
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from hooktrace.analysis.compare import Comparison, Measures, compare_runs, measure
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from tests.analysis.runs import job_run

BASE = SyntheticJob(ranks=3, steps=60)


def measured(job: SyntheticJob | Replicated, folder: Path, name: str) -> Measures:
    """Write a job's files, and return what is compared of them."""
    found = measure(job_run(job, folder), job.model, name)
    assert found is not None
    return found


_MADE: dict[str, Measures] = {}


def measures(name: str, **unlike: Any) -> Measures:
    """Return what is compared of a job like ``BASE``; of equal ones the same."""
    key = f"{name} {sorted(unlike.items())}"
    if key not in _MADE:
        with TemporaryDirectory() as folder:
            _MADE[key] = measured(like(BASE, **unlike), Path(folder), name)
    return _MADE[key]


def compared(*, seed: int = 1, **unlike: Any) -> Comparison:
    """Return the comparison of ``BASE`` with a job that differs."""
    return compare_runs(measures("base"), measures("other", seed=seed, **unlike))


def as_facts(one: Measures, **fields: Any) -> Measures:
    return Measures(replace(one.facts, **fields), one.series, one.parts)
