"""Made-up jobs and their files, and ranks that are started, as whoever tests with them has them.

What the jobs do is in golden documents; what is read of them in all tests of what reads files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from hooktrace.analysis.run import load
from hooktrace.records import StepRecord
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.ranks import RankError, run_ranks
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps, write_sharded_job

from .distributed.harness import environment

QUIET = SyntheticJob(ranks=3, steps=6, jitter_ms=0.0)
WRITTEN = SyntheticJob(ranks=3, steps=4, error=0.1, error_every=2, skews=True, anomaly_rank=2)
HYBRID = ShardedJob(ranks=4, replicas=2, steps=2, units=("<root>", "a"), late_ms={3: 10.0})


def steps(job: SyntheticJob, rank: int = 0) -> list[StepRecord]:
    """Return a rank's steps."""
    return [step.completed(rank)[0] for step in simulate(job)]


def test_a_job_is_the_same_each_time() -> None:
    """To the last number; ranks' times differ by what their clocks do, their periods not at all."""
    assert steps(QUIET) == steps(QUIET) != steps(replace(QUIET, seed=1))
    zero, two = steps(QUIET, 0), steps(QUIET, 2)
    assert {a.done_ns - b.done_ns for a, b in zip(zero, two, strict=True)} == {2 * 10**9}
    assert [s.previous_period_ns for s in zero] == [s.previous_period_ns for s in two]


def test_files_hold_the_records(tmp_path: Path) -> None:
    """Every rank's, and they are closed."""
    write_job(WRITTEN, tmp_path)
    read = {rank: read_parts([parts[0]]) for rank, parts in find_records(tmp_path).items()}
    assert sorted(read) == [0, 1, 2]
    for rank, found in read.items():
        expected = [step.completed(rank) for step in simulate(WRITTEN)]
        assert found.steps == [step for step, _ in expected]
        assert found.buckets == [bucket for _, buckets in expected for bucket in buckets]
        assert (found.run, found.assignments) == (WRITTEN.run(rank), [WRITTEN.layout(rank)])
        assert found.clocks == WRITTEN.clock_records(rank)
        assert len(found.anomalies) == (rank == 2)
        assert (found.closed, found.skipped) == (True, [])


def test_files_of_a_sharded_job(tmp_path: Path) -> None:
    """Exposed is what the units waited."""
    write_sharded_job(HYBRID, tmp_path)
    made = list(sharded_steps(HYBRID))
    for rank, paths in find_records(tmp_path).items():
        found = read_parts(paths)
        assert found.steps == [ranks[rank][0] for ranks in made]
        assert found.buckets == [b for ranks in made for b in ranks[rank][1]]
        waited = sum(b.exposed_ns or 0 for b in found.buckets if b.step == 1)
        assert (found.steps[0].exposed_ns, found.skipped) == (waited, [])


def test_a_hang_without_end_has_no_step_after_it(tmp_path: Path) -> None:
    """Nor the step itself; killed ranks have neither the record nor the file's end."""
    job = SyntheticJob(steps=20)
    record = write_hung_job(job, SyntheticHang(step=12, killed=(2,)), tmp_path)
    tracks = load(find_records(tmp_path)).tracks
    assert [int(t.steps.step.max()) for t in tracks] == [11] * 4
    assert tracks[0].records.hangs == [record]
    assert [[h.since_ns for h in t.records.hangs] for t in tracks] == [
        [] if rank == 2 else [record.since_ns - job.offset_ns(rank)] for rank in range(4)
    ]
    assert [t.records.closed for t in tracks] == [True, True, False, True]


@pytest.mark.slow
def test_no_torch_is_needed() -> None:
    """Whoever makes records only does not wait for it."""
    code = "import sys, hooktrace.testing.synthetic; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(), timeout=60)


def _fails(how: str, told: Path) -> None:
    """Fail on rank 1; rank 0 would wait for ever."""
    (told / f"pid{dist.get_rank()}").write_text(str(os.getpid()))
    if dist.get_rank() == 0 or how == "waits":
        time.sleep(3600)
    if how == "raises":
        raise ValueError("no data")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "rank 1: ValueError: no data"),
        ("is killed", "rank 1: killed by SIGKILL"),
        ("waits", "the ranks did not end within 8 s; the machine is too busy"),
    ],
)
def test_ranks_that_fail_are_told_and_all_are_ended(
    how: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one line, by the first one that failed; what torch says of it is in the logs."""
    deadline_s = 8.0 if how == "waits" else 900.0
    # Of a process that nothing captures; torch 2.14's log asks for the stream at each line.
    with (
        open(2, "w", closefd=False) as stream,
        redirect_stderr(stream),
        pytest.raises((RankError, TimeoutError)) as caught,
    ):
        run_ranks(2, _fails, how, tmp_path, logs=tmp_path, deadline_s=deadline_s)
    assert str(caught.value).startswith(said)
    assert capfd.readouterr().err == ""
    pids = [file.read_text() for file in tmp_path.glob("pid*")]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
