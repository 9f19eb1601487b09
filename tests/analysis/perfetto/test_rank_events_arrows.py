"""Ranks in one clock, whose arrows join the same bucket of the same step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hooktrace.testing.synthetic import write_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job
from tests.analysis.perfetto.test_export import JOB, exported


def test_a_rank_whose_clock_is_unknown_says_so(tmp_path: Path) -> None:
    """In its name, its label and the file's data; it is placed by its wall clock."""
    write_job(dataclasses.replace(JOB, clocks=False), tmp_path)
    _, events, other = exported(tmp_path)
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == [
        "rank 0 (host-0)",
        "rank 1 (host-0), clock unknown",
        "rank 2 (host-0), clock unknown",
    ]
    labels = [e["pid"] for e in events if e["name"] == "process_labels"]
    assert labels == [1, 2]
    assert other["ranks_with_unknown_clock"] == [1, 2]


@pytest.mark.parametrize("tells", [True, False])
def test_of_hybrid_sharding_arrows_stay_within_a_group(tells: bool, tmp_path: Path) -> None:
    """Ranks 0 and 1 gather together, and 2 and 3; 0 and 2 reduce.  Where nobody says so, none."""
    job = ShardedJob(ranks=4, replicas=2, steps=3, late_ms={3: 4.0}, tells_members=tells)
    write_sharded_job(job, tmp_path)
    _, events, _ = exported(tmp_path, "plain.json")
    joined: dict[int, set[int]] = {}
    for e in events:
        if e["ph"] in "stf":
            joined.setdefault(e["id"], set()).add(e["pid"])
    together = {frozenset(ranks) for ranks in joined.values()}
    every = {frozenset(pair) for pair in ((0, 1), (2, 3), (0, 2), (1, 3))}
    assert together == (every if tells else set())
