"""hooktrace as a program: the import, the commands that answer at once, a large job's report.

Each sample is a new interpreter, with the bytecode that the first one left.  The large report's
files are a made-up job's.  Its memory is that of all its processes.  Writing is not measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from hooktrace.commands.bench.table import Row
from hooktrace.records.cores import usable_cores
from hooktrace.testing.synthetic import SyntheticJob, write_job

_IMPORT = """
import time, torch, torch.distributed, torch.nn.parallel
start = time.perf_counter()
import hooktrace
hooktrace.trace, hooktrace.Tracer, hooktrace.instrument
print(time.perf_counter() - start)
"""
_LARGE = SyntheticJob(
    ranks=64, steps=1000, bucket_bytes=(1_000_000, *(8_000_000,) * 23, 20_000_000),
    bytes_per_second=2.5e9, backward_ms=120.0, late_ms={17: 9.0}, late_from=12, slow_every=40,
    error=0.02, anomaly_rank=2,
)  # fmt: skip
"""Rank 17 falls behind in backward, and the last bucket is large."""

_ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""In which bytecode is kept, as it is where nobody forbids it."""

_DEADLINE_S = 300.0
_SAMPLE_S = 0.1


def start_up(*, quick: bool) -> Iterator[Row]:
    """Yield the seconds of new interpreters, all but the first one's."""
    count = 4 if quick else 16
    with tempfile.TemporaryDirectory() as logdir:
        write_job(SyntheticJob(ranks=2, steps=100), Path(logdir))
        what = "import hooktrace, Tracer and trace, after torch"
        _, *took = [1e3 * _import_s() for _ in range(count)]
        yield Row(what, took, "ms", budget=50.0)
        for what, command in (
            ("hooktrace --help", ("--help",)),
            ("hooktrace report of 2 ranks x 100 steps", ("report", logdir)),
        ):
            _, *took = [_command(*command)[0] for _ in range(count)]
            yield Row(what, took, "s", budget=1.0)


def large_report(*, quick: bool) -> Iterator[Row]:
    """Yield the seconds and GiB of a report with its page; ``quick``: a tenth of the steps."""
    job = replace(_LARGE, steps=100) if quick else _LARGE
    with tempfile.TemporaryDirectory() as logdir:
        shares = [range(i, job.ranks, usable_cores()) for i in range(usable_cores())]
        with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(write_job, job, Path(logdir)), shares))
        page = str(Path(logdir, "report.html"))
        took_s, memory_bytes = _command("report", logdir, "--html", page, sample_s=_SAMPLE_S)
    what = f"report with page, {job.ranks} ranks x {job.steps:,} steps x {len(job.bucket_bytes)}"
    yield Row(what, [took_s], "s", budget=6.0)
    what = "the same, largest memory of all its processes"
    yield Row(what, [memory_bytes / 2**30], "GiB", budget=0.5)


def _import_s() -> float:
    command = [sys.executable, "-c", _IMPORT]
    return float(subprocess.check_output(command, text=True, env=_ENVIRONMENT))


def _command(*arguments: str, sample_s: float = _DEADLINE_S) -> tuple[float, int]:
    """Run hooktrace; return its seconds, and the most of memory, looked at every ``sample_s``.

    Raises ``RuntimeError`` with what it says where it fails, ``TimeoutError`` after 300 s.
    """
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
    return time.perf_counter() - start, most


def _group_bytes(group: int) -> int:
    """Return the memory of a group of processes, what they share counted in parts."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since
            if os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024
