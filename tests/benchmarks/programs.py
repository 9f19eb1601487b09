"""hooktrace as a program: the import, the commands that answer at once, a large job's report.

Each sample is a new interpreter, with the bytecode that the first one left.  The clock's time is
what a user waits; processor time is what another machine's load does not stretch.

The large report's files are a made-up job's: 64 ranks, 1,000 steps of 25 buckets.  Its memory is
that of all its processes.  Writing the files is not measured.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hooktrace.commands.bench.table import Row
from hooktrace.records.cores import usable_cores
from hooktrace.testing.synthetic import SyntheticJob, write_job

_IMPORT = """
import time, torch, torch.distributed, torch.nn.parallel
start, cpu = time.perf_counter(), time.process_time()
import hooktrace
hooktrace.trace, hooktrace.Tracer, hooktrace.instrument
print(time.perf_counter() - start, time.process_time() - cpu)
"""
_LARGE = SyntheticJob(
    ranks=64, steps=1000, bucket_bytes=(1_000_000, *(8_000_000,) * 23, 20_000_000),
    bytes_per_second=2.5e9, backward_ms=120.0, late_ms={17: 9.0}, late_from=12, slow_every=40,
    error=0.02, anomaly_rank=2,
)  # fmt: skip
"""Rank 17 falls behind in backward, and the last bucket is large."""

_SCALE_AND_BUDGET = {"ms": (1e3, 50.0), "s": (1.0, 1.0)}
"""Of the import, and of commands."""

_ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""In which bytecode is kept, as it is where nobody forbids it."""

_DEADLINE_S = 300.0
_SAMPLE_S = 0.1


class Spent(NamedTuple):
    """What a program took: by the clock, of the processor, and at most of memory, if looked at."""

    clock_s: float
    cpu_s: float
    memory_bytes: int = 0


def start_up(*, quick: bool) -> Iterator[Row]:
    """Yield two rows each, by the clock and of processor time."""
    count = 3 if quick else 15
    what = "import hooktrace, Tracer and trace, after torch"
    yield from _rows(what, _import, count, "ms")
    with tempfile.TemporaryDirectory() as logdir:
        write_job(SyntheticJob(ranks=2, steps=100), Path(logdir))
        yield from _rows("hooktrace --help", lambda: _command("--help"), count)
        what = "hooktrace report of 2 ranks x 100 steps"
        yield from _rows(what, lambda: _command("report", logdir), count)


def _rows(what: str, measure: Callable[[], Spent], count: int, unit: str = "s") -> Iterator[Row]:
    """Yield the rows of all but a first measurement."""
    measure()
    spent = [measure() for _ in range(count)]
    scale, budget = _SCALE_AND_BUDGET[unit]
    yield Row(what, [one.clock_s * scale for one in spent], unit, budget=budget)
    yield Row("the same, processor time", [one.cpu_s * scale for one in spent], unit)


def large_report(*, quick: bool) -> Iterator[Row]:
    """Yield the seconds and GiB of a report with its page; ``quick``: a tenth of the steps."""
    job = replace(_LARGE, steps=100) if quick else _LARGE
    with tempfile.TemporaryDirectory() as logdir:
        write_job(job, Path(logdir), processes=usable_cores())
        size = sum(path.stat().st_size for path in Path(logdir).rglob("*.jsonl"))
        page = str(Path(logdir, "report.html"))
        spent = _command("report", logdir, "--html", page, sample_s=_SAMPLE_S)
    what = f"report with page, {job.ranks} ranks x {job.steps:,} steps x {len(job.bucket_bytes)}"
    note = f"{size / 1e9:.2f} GB of files"
    yield Row(what, [spent.clock_s], "s", budget=6.0, note=note)
    yield Row("the same, processor time of all its processes", [spent.cpu_s], "s")
    what = "the same, largest memory of all its processes"
    yield Row(what, [spent.memory_bytes / 2**30], "GiB", budget=0.5)


def _import() -> Spent:
    command = [sys.executable, "-c", _IMPORT]
    printed = subprocess.check_output(command, text=True, env=_ENVIRONMENT)
    clock_s, cpu_s = map(float, printed.split())
    return Spent(clock_s, cpu_s)


def _command(*arguments: str, sample_s: float = _DEADLINE_S) -> Spent:
    """Run hooktrace; its memory is looked at every ``sample_s`` seconds.

    Raises ``RuntimeError`` with what it says where it fails, ``TimeoutError`` after 300 s.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    most = 0
    with subprocess.Popen(
        [sys.executable, "-m", "hooktrace", *arguments], env=_ENVIRONMENT, process_group=0,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        errors = None
        try:
            while errors is None:
                with suppress(subprocess.TimeoutExpired):
                    _, errors = process.communicate(timeout=sample_s)
                most = max(most, _group_bytes(process.pid))
                if time.perf_counter() - start > _DEADLINE_S:
                    raise TimeoutError(f"it took more than {_DEADLINE_S:.0f} s")
        finally:
            with suppress(ProcessLookupError):  # as ever: it has ended, with all that it started
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise RuntimeError(errors.strip())
    clock_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(clock_s, cpu_s, most)


def _group_bytes(group: int) -> int:
    """Return the memory of a group of processes, what they share counted in parts."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since
            if os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024
