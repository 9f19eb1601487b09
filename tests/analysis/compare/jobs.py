"""Jobs of which one knows in what they differ, and their comparisons."""

from __future__ import annotations

from functools import cache
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


def measures(name: str, **unlike: Any) -> Measures:
    """Return what is compared of a job like ``BASE``; of equal ones the same."""
    return _measures(name, tuple((k, tuple(v.items()) if k == "late_ms" else v)
                                 for k, v in sorted(unlike.items())))  # fmt: skip


@cache
def _measures(name: str, unlike: tuple[tuple[str, Any], ...]) -> Measures:
    fields = {field: getattr(BASE, field) for field in BASE.__dataclass_fields__}
    late = {k: dict(v) if k == "late_ms" else v for k, v in unlike}
    with TemporaryDirectory() as folder:
        return measured(SyntheticJob(**{**fields, **late}), Path(folder), name)


def compared(*, seed: int = 1, **unlike: Any) -> Comparison:
    """Return the comparison of ``BASE`` with a job that differs."""
    return compare_runs(measures("base"), measures("other", seed=seed, **unlike))


def as_facts(one: Measures, **fields: Any) -> Measures:
    """Return measures whose facts differ."""
    return Measures(replace(one.facts, **fields), one.series, one.parts)
