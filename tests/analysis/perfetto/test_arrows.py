"""Ranks in one clock, whose arrows join the same bucket of the same step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hooktrace.testing.synthetic import write_job
from tests.analysis.perfetto.test_export import JOB, exported
from tests.analysis.perfetto.trace_events import ns


def test_ranks_that_are_seconds_apart_are_in_one_clock(tmp_path: Path) -> None:
    """Rank r's clock is r seconds behind; only what it is late by is left."""
    write_job(JOB, tmp_path)
    _, events, _ = exported(tmp_path, "plain.json")
    starts: dict[tuple[int, str], dict[int, int]] = {}
    for e in events:
        if e["ph"] == "X" and e["cat"] == "bucket":
            key = e["args"]["step"], e["name"]
            starts.setdefault(key, {})[e["pid"]] = ns(e["ts"])
    assert min(at for by_rank in starts.values() for at in by_rank.values()) == 0
    for (_, name), by_rank in starts.items():
        late = by_rank[1] - by_rank[0]
        assert abs(late - (5_000_000 if int(name[7:]) >= 2 else 0)) < 500_000
        assert abs(by_rank[2] - by_rank[0]) < 500_000
    # Where rank 1 is late by far, all arrows end at it.
    ends = [e for e in events if e["ph"] == "f" and e["tid"] % 10_000 - e["pid"] - 2 >= 2]
    assert len(ends) == 6 * 6
    assert {e["pid"] for e in ends} == {1}


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
