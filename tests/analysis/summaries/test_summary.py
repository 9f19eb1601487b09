"""Summaries of ranks, merged: in any order and grouping the same."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.summaries import Job, Summary
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.summaries.runs import summaries_of

pytest.importorskip("datasketches")
JOB = SyntheticJob(ranks=4, steps=12, late_ms={2: 9.0}, error=0.02, error_every=5, anomaly_rank=1)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Summary]:
    return summaries_of(JOB, tmp_path_factory.mktemp("run"))[0]


def exact(summary: Summary) -> object:
    """Return all of a summary but its sketches, which are as exact as they say."""
    (model,) = summary.models.values()
    tables = [
        {name: np.round(values).tolist() for name, values in table.columns.items()}
        for table in (model.by_bucket, model.by_step)
    ]
    return (
        summary.ranks, summary.missing, summary.anomalies, summary.names, tables,
        sorted(model.ranks), model.steps, model.source.probed, model.gradient_bytes,
        {b: (e.worst.count, e.worst.most) for b, e in model.errors.items()},
        {b: round(ns) for b, ns in model.tails.items()},
    )  # fmt: skip


def test_in_any_order_and_grouping(parts: list[Summary]) -> None:
    a, b, c, d = parts
    whole = exact(reduce(Summary.merged, parts))
    assert exact(d.merged(c).merged(b).merged(a)) == whole
    assert exact(a.merged(b).merged(c.merged(d))) == whole
    assert exact(Summary().merged(a.merged(b.merged(c.merged(d))))) == whole


def test_sketches_have_all_ranks_numbers(parts: list[Summary]) -> None:
    """So few that they are all kept: the percentiles are exact."""
    (model,) = reduce(Summary.merged, parts).models.values()
    periods = [own.at(1.0) for own in (p.models["synthetic"].sketches["period"] for p in parts)]
    assert model.sketches["period"].at(1.0) == max(filter(None, periods))


def test_of_an_older_bucket_layout_nothing_is_left(parts: list[Summary]) -> None:
    one, two = parts[0].models["synthetic"], replace(parts[1].models["synthetic"], generation=2)
    assert one.merged(two) is two
    assert two.merged(one) is two


def test_the_origin_is_rank_0s(tmp_path: Path) -> None:
    """Sums of times stay small; without rank 0 they are as large as they are."""
    run = JOB.run(0)
    assert Job(run, run).origin_ns == run.host_anchor_ns
    assert Job(run, None).origin_ns == 0
