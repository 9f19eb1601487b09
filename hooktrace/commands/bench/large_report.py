"""``hooktrace report`` on the files of a large job: its time, and the memory of all its processes.

The files are a made-up job's: 64 ranks, 1,000 steps of 25 buckets.  Writing them is not
measured.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...testing.synthetic import SyntheticJob, write_job
from .table import Row, row_of

_DEADLINE_S = 300
_SAMPLE_S = 0.1


def large_job(*, steps: int = 1000) -> SyntheticJob:
    """Return the job: rank 17 falls behind in backward, and the last bucket is large."""
    return SyntheticJob(
        ranks=64,
        steps=steps,
        bucket_bytes=(1_000_000, *(8_000_000,) * 23, 20_000_000),
        bytes_per_second=2.5e9,
        backward_ms=120.0,
        late_ms={17: 9.0},
        late_from=12,
        slow_every=40,
        error=0.02,
        anomaly_rank=2,
    )


def run(*, quick: bool) -> list[Row]:
    """Return the seconds and GiB of a report with its page; ``quick``: a tenth of the steps."""
    job = large_job(steps=100 if quick else 1000)
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder)
        write_job(job, logdir, processes=len(os.sched_getaffinity(0)))
        size = sum(path.stat().st_size for path in logdir.rglob("*.jsonl"))
        seconds, cpu, memory = _measure(logdir)
    what = f"report with page, {job.ranks} ranks x {job.steps:,} steps x {len(job.bucket_bytes)}"
    note = f"{size / 1e9:.2f} GB of files"
    return [
        row_of(what, [seconds], "s", budget=8.0, note=note),
        row_of("the same, processor time of all its processes", [cpu], "s"),
        row_of("the same, largest memory of all its processes", [memory], "GiB", budget=0.5),
    ]


def _measure(logdir: Path) -> tuple[float, float, float]:
    """Return seconds, processor seconds and GiB."""
    command = [sys.executable, "-m", "hooktrace", "report", str(logdir), "--html",
               str(logdir / "report.html")]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most = 0
    try:
        while process.poll() is None:
            if time.perf_counter() - start > _DEADLINE_S:
                raise TimeoutError(f"the report took more than {_DEADLINE_S} s")
            most = max(most, sum(map(_proportional_bytes, _family(process.pid))))
            time.sleep(_SAMPLE_S)
    finally:
        process.kill()
        _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors.decode(errors="replace").strip())
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, most / 2**30


def _family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _proportional_bytes(pid: int) -> int:
    """Return a process's memory, what it shares counted in parts; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
